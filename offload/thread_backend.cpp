#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/failpoint.hpp"
#include "base/log.hpp"
#include "base/posix/signals_blocked.hpp"
#include "offload/io_backend.hpp"

namespace sluice {
namespace {

// Each thread makes one synchronous call at a time. More threads gain nothing: the kernel merges
// few of their requests.
constexpr int kMostThreads = 16;

// Shared with the threads. A thread whose system call never returns outlives the backend.
struct Shared {
  std::mutex mutex;  // guards the members below
  std::condition_variable work, finished;
  std::deque<IoTransfer> waiting;
  std::vector<IoCompletion> completed;
  std::vector<int> files;
  int busy = 0;
  bool woken = false;
  bool stopping = false;
};

std::int64_t transfer_now(const IoTransfer& t, int file) {
  if (t.sync) return ::fdatasync(file) == 0 ? 0 : -errno;
  const auto bytes = static_cast<std::size_t>(t.bytes);
  const auto moved = t.write ? ::pwrite(file, t.memory, bytes, t.offset)
                             : ::pread(file, t.memory, bytes, t.offset);
  return moved < 0 ? -errno : moved;
}

void serve(Shared& shared) {
  std::unique_lock lock(shared.mutex);
  while (true) {
    shared.work.wait(lock, [&] { return shared.stopping || !shared.waiting.empty(); });
    if (shared.stopping) return;
    const IoTransfer transfer = shared.waiting.front();
    shared.waiting.pop_front();
    const int file = shared.files.at(static_cast<std::size_t>(transfer.file));
    ++shared.busy;
    lock.unlock();
    const std::int64_t result = transfer_now(transfer, file);
    lock.lock();
    --shared.busy;
    shared.completed.push_back({transfer.tag, result});
    shared.finished.notify_one();
  }
}

class ThreadBackend final : public IoBackend {
 public:
  explicit ThreadBackend(int depth) : shared_(std::make_shared<Shared>()) {
    const auto wanted = static_cast<std::size_t>(std::min(depth, kMostThreads));
    threads_.reserve(wanted);
    const SignalsBlocked blocked;
    try {
      while (threads_.size() < wanted) {
        failpoint("nvme.thread");
        threads_.emplace_back([shared = shared_] { serve(*shared); });
      }
    } catch (const std::exception& error) {
      if (threads_.empty()) throw;
      log_warning("the NVMe tier has " + ThreadBackend::name() + " in place of " +
                  std::to_string(wanted) + ": " + error.what());
    }
  }
  ~ThreadBackend() override {
    bool stuck = false;
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->stopping = true;
      stuck = shared_->busy > 0;
    }
    shared_->work.notify_all();
    for (std::thread& thread : threads_) stuck ? thread.detach() : thread.join();
  }
  ThreadBackend(const ThreadBackend&) = delete;
  ThreadBackend& operator=(const ThreadBackend&) = delete;

  [[nodiscard]] std::string name() const override {
    return std::to_string(threads_.size()) + " threads";
  }
  void use_files(std::span<const int> descriptors) override {
    const std::lock_guard lock(shared_->mutex);
    shared_->files.assign(descriptors.begin(), descriptors.end());
  }
  void use_memory(std::span<const IoMemory> /*ranges*/) override {}

  void submit(const IoTransfer& transfer) override {
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->waiting.push_back(transfer);
    }
    shared_->work.notify_one();
  }
  void flush() override {}

  void wait(std::vector<IoCompletion>& completions, std::int64_t timeout_ms) override {
    std::unique_lock lock(shared_->mutex);
    const auto ready = [&] { return shared_->woken || !shared_->completed.empty(); };
    if (timeout_ms < 0) {
      shared_->finished.wait(lock, ready);
    } else {
      shared_->finished.wait_for(lock, std::chrono::milliseconds(timeout_ms), ready);
    }
    shared_->woken = false;
    completions.insert(completions.end(), shared_->completed.begin(), shared_->completed.end());
    shared_->completed.clear();
  }

  void wake() noexcept override {
    const std::lock_guard lock(shared_->mutex);
    shared_->woken = true;
    shared_->finished.notify_one();
  }

 private:
  std::shared_ptr<Shared> shared_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<IoBackend> make_thread_backend(int depth) {
  return std::make_unique<ThreadBackend>(depth);
}

}  // namespace sluice
