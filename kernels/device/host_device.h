// A device in host memory: every stream is a thread of its own.
#ifndef TALLY_KERNELS_DEVICE_HOST_DEVICE_H_
#define TALLY_KERNELS_DEVICE_HOST_DEVICE_H_

#include <cstddef>
#include <memory>

#include "kernels/device/device.h"
#include "kernels/device/host_memory.h"

namespace tally {

// Copies never fail. Arenas are allocated by one thread at a time; a stream takes work from any
// thread. A stream's destructor runs all that it was given.
class HostDevice final : public Device {
 public:
  // `memory_bytes`: that all arenas together may have.
  explicit HostDevice(std::size_t memory_bytes = MemoryBudget::kUnlimited)
      : memory_(memory_bytes) {}

  absl::StatusOr<std::unique_ptr<KvArena>> AllocateArena(std::uint32_t num_blocks,
                                                         std::size_t block_bytes) override {
    return AllocateHostMemory(num_blocks, block_bytes, memory_);
  }
  absl::StatusOr<std::unique_ptr<KvArena>> AllocateHostArena(std::uint32_t num_blocks,
                                                             std::size_t block_bytes) override {
    return AllocateHostMemory(num_blocks, block_bytes, memory_);
  }
  absl::StatusOr<std::unique_ptr<DeviceStream>> CreateStream() override;

 private:
  MemoryBudget memory_;
};

}  // namespace tally

#endif  // TALLY_KERNELS_DEVICE_HOST_DEVICE_H_
