#include "engine/workload/test_files.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

#include "engine/base/check.h"

namespace tally {

std::string WriteTestFile(std::string_view name, std::string_view bytes) {
  const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string path = testing::TempDir() + "/" + test->test_suite_name() + "." + test->name() +
                           "." + std::string(name);
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  TALLY_CHECK(file.good(), "can't write %s", path.c_str());
  return path;
}

std::string Gzip(std::string_view bytes) {
  z_stream stream{};
  constexpr int kGzip = 16 + 15;
  TALLY_CHECK(deflateInit2(&stream, 6, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) == Z_OK, "zlib");
  std::string out(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  TALLY_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END, "zlib");
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string WriteGzipTestFile(std::string_view name, std::string_view bytes) {
  return WriteTestFile(name, Gzip(bytes));
}

std::string SharedTrace(std::string_view name) {
  // A test's input files are links to the sources: one of them leads to the repository's root.
  std::error_code error;
  const std::filesystem::path here =
      std::filesystem::canonical("engine/workload/workload.h", error);
  if (error) return "";
  const std::filesystem::path root = here.parent_path().parent_path().parent_path();
  const std::filesystem::path path = root.parent_path() / "shared" / "traces" / name;
  return std::filesystem::is_regular_file(path, error) ? path.string() : "";
}

}  // namespace tally
