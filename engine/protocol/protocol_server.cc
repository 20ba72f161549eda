#include "engine/protocol/protocol_server.h"

#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tally {
namespace {

// Answers are held back for at most so many bytes while commands are at hand.
constexpr std::size_t kMaxHeldBytes = 1 << 16;

}  // namespace

absl::Status ServeProtocol(ProtocolEngine& engine, LineReader::Source source,
                           const ByteSink& sink) {
  std::string held;
  const auto flush = [&]() -> absl::Status {
    if (held.empty()) return absl::OkStatus();
    absl::Status status = sink(held);
    held.clear();
    return status;
  };
  LineReader lines(
      [&](char* data, std::size_t size) -> absl::StatusOr<std::size_t> {
        if (absl::Status status = flush(); !status.ok()) return status;
        return source(data, size);
      },
      kMaxCommandBytes);
  std::string_view line;
  while (true) {
    const absl::StatusOr<LineReader::Kind> kind = lines.Next(line);
    if (!kind.ok()) return kind.status();
    if (*kind == LineReader::Kind::kEnd) return flush();
    if (*kind == LineReader::Kind::kTooLong) {
      held.append(
          engine.Refuse(absl::StrCat("command: line ", lines.line_number(),
                                     " is too long, wanted at most ", kMaxCommandBytes, " bytes")));
    } else if (line.empty()) {
      continue;
    } else {
      held.append(engine.Answer(line));
    }
    held.push_back('\n');
    if (held.size() >= kMaxHeldBytes) {
      if (absl::Status status = flush(); !status.ok()) return status;
    }
  }
}

}  // namespace tally
