// Threads for blocking input and output, off the model's and the scheduler's thread.
#ifndef TALLY_ENGINE_CONNECTOR_IO_POOL_H_
#define TALLY_ENGINE_CONNECTOR_IO_POOL_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tally {

class IoPool {
 public:
  explicit IoPool(std::size_t num_threads) {
    for (std::size_t i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Work(); });
  }
  ~IoPool() { Shutdown(); }
  IoPool(const IoPool&) = delete;
  IoPool& operator=(const IoPool&) = delete;

  // Jobs start in order. After Shutdown they are dropped.
  void Submit(std::function<void()> job) {
    {
      const std::lock_guard lock(mutex_);
      if (ending_) return;
      jobs_.push_back(std::move(job));
    }
    changed_.notify_one();
  }
  // Drops jobs that did not start and waits for those that did. Twice is fine.
  void Shutdown() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      jobs_.clear();
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void Work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_CONNECTOR_IO_POOL_H_
