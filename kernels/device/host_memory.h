// Arenas in host memory, for devices that are none.
#ifndef TALLY_KERNELS_DEVICE_HOST_MEMORY_H_
#define TALLY_KERNELS_DEVICE_HOST_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device/device.h"

namespace tally {

// Memory that is still to be had; arenas take from it and give back. Not limited by default.
class MemoryBudget {
 public:
  static constexpr std::size_t kUnlimited = SIZE_MAX;
  explicit MemoryBudget(std::size_t bytes) : left_(bytes) {}
  bool Take(std::size_t bytes) {
    if (bytes > left_) return false;
    if (left_ != kUnlimited) left_ -= bytes;
    return true;
  }
  void GiveBack(std::size_t bytes) {
    if (left_ != kUnlimited) left_ += bytes;
  }

 private:
  std::size_t left_;
};

// Zeroed, aligned to pages. ResourceExhausted when `budget` or the machine has not so much;
// InvalidArgument for blocks of no bytes. The budget outlives the arena.
absl::StatusOr<std::unique_ptr<KvArena>> AllocateHostMemory(std::uint32_t num_blocks,
                                                            std::size_t block_bytes,
                                                            MemoryBudget& budget);

}  // namespace tally

#endif  // TALLY_KERNELS_DEVICE_HOST_MEMORY_H_
