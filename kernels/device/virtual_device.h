// A device for tests: streams run in an order that a seed chooses among all that the interface
// allows, so that a missing edge between two streams shows as wrong bytes in many seeds.
//
// An operation may run at any time after its submission that the order of its stream and the events
// it waits for allow, as late as somebody waits for it. A copy is not atomic: its pieces are read
// and written one by one, in any order, between the steps of other streams. With source order
// kAny, which CUDA's batched copies offer, the reads do not even wait for their turn in the stream:
// less than DeviceStream promises, to show what that would break.
//
// There are no threads: work runs inside of calls, on the caller's thread. Equal calls give equal
// runs. A function given to Run may run inside any call of the device, so that callers must hold no
// lock that it takes.
#ifndef TALLY_KERNELS_DEVICE_VIRTUAL_DEVICE_H_
#define TALLY_KERNELS_DEVICE_VIRTUAL_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/device/device.h"
#include "kernels/device/host_memory.h"

namespace tally {

class VirtualDevice final : public Device {
 public:
  enum class SourceOrder : std::uint8_t { kStream, kAny };

  struct Options {
    std::uint64_t seed = 0;
    SourceOrder source_order = SourceOrder::kStream;
    // Shares of copies, 0 to 1. A failed one writes some of its pieces; the next event recorded on
    // its stream waits for it as usual and then answers Internal. A refused one is not taken: Copy
    // answers Internal. A delayed one rests for up to `delay` steps when its turn comes.
    double failed_copies = 0;
    double refused_copies = 0;
    double delayed_copies = 0;
    std::uint32_t delay = 100;
    std::size_t memory_bytes = MemoryBudget::kUnlimited;
  };

  explicit VirtualDevice(const Options& options);
  ~VirtualDevice() override;

  absl::StatusOr<std::unique_ptr<KvArena>> AllocateArena(std::uint32_t num_blocks,
                                                         std::size_t block_bytes) override;
  absl::StatusOr<std::unique_ptr<KvArena>> AllocateHostArena(std::uint32_t num_blocks,
                                                             std::size_t block_bytes) override;
  absl::StatusOr<std::unique_ptr<DeviceStream>> CreateStream() override;

  // Faults happen from now on, or not at all.
  void SetFaults(double failed_copies, double refused_copies, double delayed_copies);
  // Lets up to `steps` steps happen.
  void Advance(std::uint32_t steps);
  // Whether copies that were submitted and did not end yet read (or write) any of these bytes.
  bool IsBeingRead(const std::byte* begin, std::size_t bytes) const;
  bool IsBeingWritten(const std::byte* begin, std::size_t bytes) const;
  // Copies that failed or were refused so far.
  std::uint64_t num_faults() const;

 private:
  class Stream;
  class Event;
  struct Piece;
  struct Operation;

  std::uint64_t Random(std::uint64_t bound);
  bool Happens(double share);
  // Below, the lock is held.
  void AdvanceSome();
  bool Step();
  bool StepHead(Stream& stream);
  bool ReadEarly(Stream& stream);
  template <typename Condition>
  void AdvanceUntil(const Condition& done);
  bool Touches(const std::byte* begin, std::size_t bytes, bool write) const;

  mutable std::mutex mutex_;
  Options options_;
  std::uint64_t random_;
  std::uint32_t burst_;  // steps that happen in a call at most
  std::uint64_t num_faults_ = 0;
  std::vector<Stream*> streams_;
  MemoryBudget memory_;
};

}  // namespace tally

#endif  // TALLY_KERNELS_DEVICE_VIRTUAL_DEVICE_H_
