#include "kernels/device/host_memory.h"

#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"

namespace tally {
namespace {

constexpr std::align_val_t kAlignment{4096};

class HostArena final : public KvArena {
 public:
  HostArena(std::byte* data, std::uint32_t num_blocks, std::size_t block_bytes,
            MemoryBudget& budget)
      : KvArena(data, num_blocks, block_bytes), budget_(budget) {}
  ~HostArena() override {
    budget_.GiveBack(num_blocks() * block_bytes());
    ::operator delete(data(), kAlignment);
  }

 private:
  MemoryBudget& budget_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<KvArena>> AllocateHostMemory(std::uint32_t num_blocks,
                                                            std::size_t block_bytes,
                                                            MemoryBudget& budget) {
  if (num_blocks == 0 || block_bytes == 0) {
    return absl::InvalidArgumentError(absl::StrCat("arena: ", num_blocks, " blocks of ",
                                                   block_bytes, " bytes, wanted at least one"));
  }
  const auto exhausted = [&] {
    return absl::ResourceExhaustedError(
        absl::StrCat("arena: no memory for ", num_blocks, " blocks of ", block_bytes, " bytes"));
  };
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(std::size_t{num_blocks}, block_bytes, &bytes) || !budget.Take(bytes)) {
    return exhausted();
  }
  void* data = ::operator new(bytes, kAlignment, std::nothrow);
  if (data == nullptr) {
    budget.GiveBack(bytes);
    return exhausted();
  }
  std::memset(data, 0, bytes);
  return std::make_unique<HostArena>(static_cast<std::byte*>(data), num_blocks, block_bytes,
                                     budget);
}

}  // namespace tally
