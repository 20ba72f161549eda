// Where KV lives and how it moves: an arena of blocks, streams of copies, events between them.
//
// One interface, three implementations: host memory with threads (HostDevice), the same with
// streams that are run in an order chosen by a seed, to find missing edges (VirtualDevice), and
// CUDA where there is a toolkit. Nothing here knows of requests or schedulers.
//
// Order: work on one stream runs in the order in which it was given; work on two streams is ordered
// only by an event that one recorded and the other waits for. A submission returns before its work
// is done. Memory that work reads or writes must stay as it is until the work is done.
#ifndef TALLY_KERNELS_DEVICE_DEVICE_H_
#define TALLY_KERNELS_DEVICE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tally {

// Memory for blocks of KV: `num_blocks` of `block_bytes` each, one after the other. A block holds
// all layers and both keys and values of its tokens.
class KvArena {
 public:
  virtual ~KvArena() = default;
  std::uint32_t num_blocks() const { return num_blocks_; }
  std::size_t block_bytes() const { return block_bytes_; }
  // Device memory: host code may read and write it only through copies, except on host devices.
  std::byte* data() const { return data_; }
  std::byte* block(std::uint32_t index) const { return data_ + std::size_t{index} * block_bytes_; }

 protected:
  KvArena(std::byte* data, std::uint32_t num_blocks, std::size_t block_bytes)
      : data_(data), num_blocks_(num_blocks), block_bytes_(block_bytes) {}

 private:
  std::byte* data_;
  std::uint32_t num_blocks_;
  std::size_t block_bytes_;
};

// `bytes` from one place to another. Copies of one batch do not overlap.
struct BlockCopy {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t bytes = 0;
};

enum class CopyKind : std::uint8_t { kHostToDevice, kDeviceToHost, kDeviceToDevice };

// A point in a stream's work. Recorded once.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  // Whether everything before it is done; true for one that was never recorded.
  virtual bool Done() = 0;
  // Blocks until it is Done. Internal when the device failed.
  virtual absl::Status Wait() = 0;
};

class DeviceStream {
 public:
  virtual ~DeviceStream() = default;
  // Queues a batch of copies; `copies` may go when this returns.
  virtual absl::Status Copy(CopyKind kind, std::span<const BlockCopy> copies) = 0;
  // Queues a host function. It must not call the device.
  virtual absl::Status Run(std::function<void()> work) = 0;
  virtual absl::StatusOr<std::shared_ptr<DeviceEvent>> Record() = 0;
  // What is queued after this runs after `event`.
  virtual absl::Status WaitFor(std::shared_ptr<DeviceEvent> event) = 0;
  // Blocks until all queued work is done.
  virtual absl::Status Synchronize() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  // ResourceExhausted with the bytes wanted when there is no memory. Blocks are zero. Arenas and
  // streams end before the device.
  virtual absl::StatusOr<std::unique_ptr<KvArena>> AllocateArena(std::uint32_t num_blocks,
                                                                 std::size_t block_bytes) = 0;
  // Host memory that copies reach fastest (pinned where that exists).
  virtual absl::StatusOr<std::unique_ptr<KvArena>> AllocateHostArena(std::uint32_t num_blocks,
                                                                     std::size_t block_bytes) = 0;
  virtual absl::StatusOr<std::unique_ptr<DeviceStream>> CreateStream() = 0;
};

}  // namespace tally

#endif  // TALLY_KERNELS_DEVICE_DEVICE_H_
