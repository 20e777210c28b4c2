#include "parallel/comm/op_queue.hpp"

#include <utility>

#include "base/error.hpp"
#include "parallel/comm/sigpipe.hpp"

namespace sluice {

std::string describe_failure(const GroupName& name, const std::string& op, std::uint64_t seq,
                             const std::string& why) {
  return op + " #" + std::to_string(seq) + " of group " + name.group + " failed on rank " +
         std::to_string(name.rank) + " of " + std::to_string(name.size) + ": " + why;
}

std::string describe_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

void Failure::raise() const { throw CommError(text, secondary); }

Failure failure_of(const std::exception& error) {
  return {error_chain(error), is_secondary(error)};
}

void Completion::finish(std::optional<Failure> failure) {
  const std::lock_guard lock(mutex_);
  done_ = true;
  failure_ = std::move(failure);
  changed_.notify_all();
}

void Completion::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_; });
  if (failure_) failure_->raise();
}

bool Completion::done() {
  const std::lock_guard lock(mutex_);
  return done_;
}

OpQueue::OpQueue(GroupName name, Hooks hooks, std::chrono::milliseconds grace)
    : name_(std::move(name)), hooks_(std::move(hooks)), grace_(grace), thread_([this] { run(); }) {}

OpQueue::~OpQueue() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  const bool drained = idle_.wait_for(lock, grace_, [this] { return items_.empty() && !running_; });
  lock.unlock();
  if (!drained) abort();
  lock.lock();
  stop_ = true;
  wake_.notify_all();
  lock.unlock();
  thread_.join();
}

Ticket OpQueue::submit(std::function<void()> body) {
  const std::lock_guard lock(mutex_);
  if (failure_) failure_->raise();
  if (closed_) throw CommError("group " + name_.group + " is being closed", /*secondary=*/true);
  auto completion = std::make_shared<Completion>();
  items_.push_back({std::move(body), completion});
  wake_.notify_one();
  return Ticket(std::move(completion));
}

void OpQueue::abort() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) {
      failure_ =
          Failure{"group " + name_.group + " was aborted on rank " + std::to_string(name_.rank)};
    }
    wake_.notify_all();
  }
  hooks_.interrupt();
  std::unique_lock lock(mutex_);
  idle_.wait_for(lock, grace_, [this] { return items_.empty() && !running_; });
}

void OpQueue::run_one(std::unique_lock<std::mutex>& lock) {
  Item item = std::move(items_.front());
  items_.pop_front();
  running_ = true;
  lock.unlock();
  std::optional<Failure> error;
  try {
    item.body();
  } catch (const std::exception& thrown) {
    error = failure_of(thrown);
  }
  lock.lock();
  running_ = false;
  if (error && !failure_) failure_ = error;
  // After an abort the cause is the abort, not the exception of the interrupted body.
  item.completion->finish(error ? failure_ : std::nullopt);
  idle_.notify_all();
}

void OpQueue::run() {
  const SigpipeBlock no_sigpipe;  // the bodies write to connections
  std::unique_lock lock(mutex_);
  while (!failure_) {
    wake_.wait(lock, [this] { return stop_ || failure_ || !items_.empty(); });
    if (failure_ || items_.empty()) break;
    run_one(lock);
  }
  if (!failure_) return;
  // submit() refuses new operations from now on, so items_ cannot grow any more.
  for (Item& item : items_) item.completion->finish(failure_);
  items_.clear();
  idle_.notify_all();
  lock.unlock();
  hooks_.broken();
}

}  // namespace sluice
