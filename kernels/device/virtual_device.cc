#include "kernels/device/virtual_device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "engine/base/check.h"

namespace tally {

// A part of a copy: read into `held`, written from it.
struct VirtualDevice::Piece {
  BlockCopy copy;
  std::vector<std::byte> held;
  bool read = false;
  bool written = false;
};

class VirtualDevice::Event final : public DeviceEvent {
 public:
  explicit Event(VirtualDevice& device) : device_(device) {}
  bool Done() override {
    const std::lock_guard lock(device_.mutex_);
    if (!done_) device_.AdvanceSome();
    return done_;
  }
  absl::Status Wait() override {
    const std::lock_guard lock(device_.mutex_);
    device_.AdvanceUntil([this] { return done_; });
    return status_;
  }

 private:
  friend VirtualDevice;
  VirtualDevice& device_;
  bool done_ = false;
  absl::Status status_;
};

struct VirtualDevice::Operation {
  enum class Kind : std::uint8_t { kCopy, kRun, kRecord, kWait };
  Kind kind;
  std::vector<Piece> pieces;
  std::size_t num_written = 0;
  bool fails = false;
  std::uint32_t delay = 0;
  std::function<void()> work;
  std::shared_ptr<Event> event;
};

class VirtualDevice::Stream final : public DeviceStream {
 public:
  explicit Stream(VirtualDevice& device) : device_(device) {}
  ~Stream() override {
    const std::lock_guard lock(device_.mutex_);
    device_.AdvanceUntil([this] { return queue_.empty(); });
    std::erase(device_.streams_, this);
  }

  absl::Status Copy(CopyKind, std::span<const BlockCopy> copies) override {
    const std::lock_guard lock(device_.mutex_);
    if (device_.Happens(device_.options_.refused_copies)) {
      ++device_.num_faults_;
      return absl::InternalError("virtual device: a copy was refused");
    }
    Operation copy{.kind = Operation::Kind::kCopy};
    for (const BlockCopy& all : copies) {
      // Two halves, so that one copy can be torn.
      const std::size_t first = device_.Random(all.bytes + 1);
      for (const auto& [offset, bytes] :
           {std::pair<std::size_t, std::size_t>{0, first}, {first, all.bytes - first}}) {
        if (bytes == 0) continue;
        copy.pieces.push_back({.copy = {all.from + offset, all.to + offset, bytes}});
      }
    }
    copy.fails = device_.Happens(device_.options_.failed_copies);
    if (copy.fails) ++device_.num_faults_;
    if (device_.Happens(device_.options_.delayed_copies)) {
      copy.delay = static_cast<std::uint32_t>(1 + device_.Random(device_.options_.delay));
    }
    Queue(std::move(copy));
    return absl::OkStatus();
  }
  absl::Status Run(std::function<void()> work) override {
    const std::lock_guard lock(device_.mutex_);
    Queue({.kind = Operation::Kind::kRun, .work = std::move(work)});
    return absl::OkStatus();
  }
  absl::StatusOr<std::shared_ptr<DeviceEvent>> Record() override {
    const std::lock_guard lock(device_.mutex_);
    auto event = std::make_shared<Event>(device_);
    Queue({.kind = Operation::Kind::kRecord, .event = event});
    return event;
  }
  absl::Status WaitFor(std::shared_ptr<DeviceEvent> event) override {
    auto own = std::dynamic_pointer_cast<Event>(std::move(event));
    if (own == nullptr) return absl::InvalidArgumentError("event: of another device");
    const std::lock_guard lock(device_.mutex_);
    Queue({.kind = Operation::Kind::kWait, .event = std::move(own)});
    return absl::OkStatus();
  }
  absl::Status Synchronize() override {
    const std::lock_guard lock(device_.mutex_);
    device_.AdvanceUntil([this] { return queue_.empty(); });
    return absl::OkStatus();
  }

 private:
  friend VirtualDevice;
  void Queue(Operation operation) {
    queue_.push_back(std::move(operation));
    device_.AdvanceSome();
  }

  VirtualDevice& device_;
  std::deque<Operation> queue_;
  bool failed_ = false;  // a copy since the last event
};

VirtualDevice::VirtualDevice(const Options& options)
    : options_(options), random_(options.seed), memory_(options.memory_bytes) {
  // Some seeds make an eager device, some one that hardly works before somebody waits.
  constexpr std::array<std::uint32_t, 4> kBursts = {1, 2, 8, 64};
  burst_ = kBursts[Random(kBursts.size())];
}

VirtualDevice::~VirtualDevice() {
  TALLY_CHECK(streams_.empty(), "%zu streams outlive their device", streams_.size());
}

absl::StatusOr<std::unique_ptr<KvArena>> VirtualDevice::AllocateArena(std::uint32_t num_blocks,
                                                                      std::size_t block_bytes) {
  return AllocateHostMemory(num_blocks, block_bytes, memory_);
}

absl::StatusOr<std::unique_ptr<KvArena>> VirtualDevice::AllocateHostArena(std::uint32_t num_blocks,
                                                                          std::size_t block_bytes) {
  return AllocateHostMemory(num_blocks, block_bytes, memory_);
}

absl::StatusOr<std::unique_ptr<DeviceStream>> VirtualDevice::CreateStream() {
  const std::lock_guard lock(mutex_);
  auto stream = std::make_unique<Stream>(*this);
  streams_.push_back(stream.get());
  return stream;
}

void VirtualDevice::SetFaults(double failed_copies, double refused_copies, double delayed_copies) {
  const std::lock_guard lock(mutex_);
  options_.failed_copies = failed_copies;
  options_.refused_copies = refused_copies;
  options_.delayed_copies = delayed_copies;
}

void VirtualDevice::Advance(std::uint32_t steps) {
  const std::lock_guard lock(mutex_);
  for (std::uint32_t i = 0; i < steps; ++i) Step();
}

bool VirtualDevice::IsBeingRead(const std::byte* begin, std::size_t bytes) const {
  return Touches(begin, bytes, false);
}

bool VirtualDevice::IsBeingWritten(const std::byte* begin, std::size_t bytes) const {
  return Touches(begin, bytes, true);
}

std::uint64_t VirtualDevice::num_faults() const {
  const std::lock_guard lock(mutex_);
  return num_faults_;
}

bool VirtualDevice::Touches(const std::byte* begin, std::size_t bytes, bool write) const {
  const std::lock_guard lock(mutex_);
  for (const Stream* stream : streams_) {
    for (const Operation& operation : stream->queue_) {
      for (const Piece& piece : operation.pieces) {
        if (write ? piece.written : piece.read) continue;
        const std::byte* start = write ? piece.copy.to : piece.copy.from;
        if (start < begin + bytes && begin < start + piece.copy.bytes) return true;
      }
    }
  }
  return false;
}

std::uint64_t VirtualDevice::Random(std::uint64_t bound) {
  random_ += 0x9E3779B97F4A7C15ULL;
  std::uint64_t mixed = random_;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ULL;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBULL;
  return (mixed ^ (mixed >> 31)) % bound;
}

bool VirtualDevice::Happens(double share) {
  return share > 0 && static_cast<double>(Random(1'000'000)) < share * 1'000'000;
}

void VirtualDevice::AdvanceSome() {
  for (std::uint64_t steps = Random(burst_ + 1); steps > 0; --steps) Step();
}

template <typename Condition>
void VirtualDevice::AdvanceUntil(const Condition& done) {
  while (!done()) {
    if (Step()) continue;
    // The stream that was picked cannot go on: look whether any can.
    const bool moved = std::any_of(streams_.begin(), streams_.end(),
                                   [this](Stream* stream) { return StepHead(*stream); });
    TALLY_CHECK(moved, "%zu streams wait for each other", streams_.size());
  }
}

// One step of one stream; false when that stream could not do anything.
bool VirtualDevice::Step() {
  if (streams_.empty()) return false;
  Stream& stream = *streams_[Random(streams_.size())];
  if (options_.source_order == SourceOrder::kAny && Random(2) == 0 && ReadEarly(stream)) {
    return true;
  }
  return StepHead(stream);
}

bool VirtualDevice::ReadEarly(Stream& stream) {
  std::vector<Piece*> unread;
  for (Operation& operation : stream.queue_) {
    for (Piece& piece : operation.pieces) {
      if (!piece.read) unread.push_back(&piece);
    }
  }
  if (unread.empty()) return false;
  Piece& piece = *unread[Random(unread.size())];
  piece.held.assign(piece.copy.from, piece.copy.from + piece.copy.bytes);
  piece.read = true;
  return true;
}

bool VirtualDevice::StepHead(Stream& stream) {
  if (stream.queue_.empty()) return false;
  Operation& head = stream.queue_.front();
  switch (head.kind) {
    case Operation::Kind::kCopy: {
      if (head.delay > 0) {
        --head.delay;
        return true;
      }
      if (head.num_written < head.pieces.size()) {
        std::size_t place = Random(head.pieces.size());
        while (head.pieces[place].written) place = (place + 1) % head.pieces.size();
        Piece& piece = head.pieces[place];
        if (!piece.read) {
          piece.held.assign(piece.copy.from, piece.copy.from + piece.copy.bytes);
          piece.read = true;
          return true;
        }
        if (!head.fails || Random(2) == 0) {
          std::memcpy(piece.copy.to, piece.held.data(), piece.copy.bytes);
        }
        piece.written = true;
        if (++head.num_written < head.pieces.size()) return true;
      }
      stream.failed_ |= head.fails;
      break;
    }
    case Operation::Kind::kRun:
      head.work();
      break;
    case Operation::Kind::kRecord:
      head.event->done_ = true;
      if (std::exchange(stream.failed_, false)) {
        head.event->status_ = absl::InternalError("virtual device: a copy failed");
      }
      break;
    case Operation::Kind::kWait:
      if (!head.event->done_) return false;
      break;
  }
  stream.queue_.pop_front();
  return true;
}

}  // namespace tally
