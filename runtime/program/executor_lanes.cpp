#include "runtime/program/executor_lanes.hpp"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.hpp"

namespace sluice {
namespace {

// The state of a submitted operation: not started, started (then its own Ticket decides) or failed.
class Submitted final : public TicketState {
 public:
  Submitted(const LaneHooks& hooks, std::vector<Ticket> waits, std::function<Ticket()> start)
      : hooks_(hooks), waits_(std::move(waits)), start_(std::move(start)) {}

  // `begun`: whether the thread has run LaneHooks::begins.
  void run(bool& begun) noexcept {
    try {
      if (!begun && hooks_.begins) hooks_.begins();
      begun = true;
      for (const Ticket& ticket : waits_) ticket.wait();
      if (hooks_.waited) hooks_.waited();
      finish(start_(), nullptr);
    } catch (...) {
      finish({}, std::current_exception());
    }
  }
  void cancel() noexcept {
    finish({}, std::make_exception_ptr(Error("not started: another operation of the step failed")));
  }

  void wait() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return started_; });
    if (error_) std::rethrow_exception(error_);
    const Ticket inner = inner_;
    lock.unlock();
    inner.wait();
  }
  bool done() override {
    const std::lock_guard lock(mutex_);
    return started_ && (error_ || inner_.done());
  }

 private:
  void finish(Ticket inner, std::exception_ptr error) noexcept {
    {
      const std::lock_guard lock(mutex_);
      inner_ = std::move(inner);
      error_ = std::move(error);
      started_ = true;
      waits_.clear();
      start_ = nullptr;
    }
    changed_.notify_all();
  }

  const LaneHooks& hooks_;  // used only by the worker
  std::vector<Ticket> waits_;
  std::function<Ticket()> start_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  std::exception_ptr error_;
  Ticket inner_;
};

}  // namespace

class LaneThreads::Worker {
 public:
  Worker() : thread_([this] { loop(); }) {}
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void add(std::shared_ptr<Submitted> operation) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(operation));
    }
    changed_.notify_all();
  }

  void drop_queue() {
    const std::lock_guard lock(mutex_);
    for (const auto& operation : queue_) operation->cancel();
    queue_.clear();
  }
  void settle() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !running_ && queue_.empty(); });
  }

 private:
  void loop() {
    bool begun = false;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const std::shared_ptr<Submitted> operation = std::move(queue_.front());
      queue_.pop_front();
      running_ = true;
      lock.unlock();
      operation->run(begun);
      lock.lock();
      running_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Submitted>> queue_;
  bool running_ = false;
  bool stopping_ = false;
  std::thread thread_;  // last member, because the thread uses the others
};

LaneThreads::LaneThreads(LaneHooks hooks)
    : hooks_(std::move(hooks)), workers_(static_cast<std::size_t>(kLaneCount)) {}

LaneThreads::~LaneThreads() { cancel(); }

LaneThreads::Worker& LaneThreads::worker(std::size_t at) {
  if (workers_.size() <= at) workers_.resize(at + 1);
  if (!workers_[at]) workers_[at] = std::make_unique<Worker>();
  return *workers_[at];
}

Ticket LaneThreads::submit(Lane lane, std::vector<Ticket> waits, std::function<Ticket()> start) {
  auto operation = std::make_shared<Submitted>(hooks_, std::move(waits), std::move(start));
  worker(static_cast<std::size_t>(lane)).add(operation);
  return Ticket(std::move(operation));
}

void LaneThreads::when_done(std::size_t wire, Ticket ticket, std::function<void()> over) {
  worker(static_cast<std::size_t>(kLaneCount) + wire)
      .add(std::make_shared<Submitted>(hooks_, std::vector<Ticket>{std::move(ticket)},
                                       [over = std::move(over)]() -> Ticket {
                                         over();
                                         return {};
                                       }));
}

void LaneThreads::settle() {
  for (std::size_t i = static_cast<std::size_t>(kLaneCount); i < workers_.size(); ++i) {
    if (workers_[i]) workers_[i]->settle();
  }
}

// Empties all queues first, so that no running operation waits for one that never starts.
void LaneThreads::cancel() noexcept {
  for (const auto& worker : workers_) {
    if (worker) worker->drop_queue();
  }
  for (const auto& worker : workers_) {
    if (worker) worker->settle();
  }
}

}  // namespace sluice
