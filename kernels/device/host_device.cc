#include "kernels/device/host_device.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace tally {
namespace {

class HostEvent final : public DeviceEvent {
 public:
  bool Done() override {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  absl::Status Wait() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
    return absl::OkStatus();
  }
  void Set() {
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
};

class HostStream final : public DeviceStream {
 public:
  HostStream() : thread_([this] { Work(); }) {}
  ~HostStream() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  absl::Status Copy(CopyKind, std::span<const BlockCopy> copies) override {
    Queue([batch = std::vector<BlockCopy>(copies.begin(), copies.end())] {
      for (const BlockCopy& copy : batch) std::memcpy(copy.to, copy.from, copy.bytes);
    });
    return absl::OkStatus();
  }
  absl::Status Run(std::function<void()> work) override {
    Queue(std::move(work));
    return absl::OkStatus();
  }
  absl::StatusOr<std::shared_ptr<DeviceEvent>> Record() override {
    auto event = std::make_shared<HostEvent>();
    Queue([event] { event->Set(); });
    return event;
  }
  absl::Status WaitFor(std::shared_ptr<DeviceEvent> event) override {
    // Events are recorded before they are waited for, so streams never wait in a circle.
    Queue([event = std::move(event)] { event->Wait().IgnoreError(); });
    return absl::OkStatus();
  }
  absl::Status Synchronize() override {
    auto event = std::make_shared<HostEvent>();
    Queue([event] { event->Set(); });
    return event->Wait();
  }

 private:
  void Queue(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    changed_.notify_all();
  }
  void Work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ending_ || !queue_.empty(); });
      if (queue_.empty()) return;
      std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
      work = nullptr;  // what it holds goes before the next one runs
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool ending_ = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceStream>> HostDevice::CreateStream() {
  return std::make_unique<HostStream>();
}

}  // namespace tally
