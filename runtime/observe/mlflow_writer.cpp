#include "runtime/observe/mlflow_writer.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/thread_rank.hpp"

namespace sluice {
namespace {

// Between attempts to open a store that could not be opened.
constexpr std::chrono::seconds kBetweenOpens{30};

}  // namespace

// Guarded by mutex_: the queue, the status and the flags. The thread alone uses the rest.
class MlflowWriter::Shared {
 public:
  Shared(MlflowOptions options, std::int64_t first_step)
      : options_(std::move(options)), first_step_(first_step) {}

  void add(TimedRecord record) {
    bool full = false;
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(record));
      full = queue_.size() > kMostQueued;
      if (full) queue_.pop_front();
    }
    changed_.notify_all();
    if (full && !std::exchange(said_full_, true)) {
      log_warning("output.mlflow: " + options_.dir +
                  " is slower than the steps; MLflow will lack the oldest steps that wait");
    }
  }

  // False: the thread has not written everything within `patience`. The thread then logs no more.
  bool end(MlflowStatus status, std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    status_ = status;
    changed_.notify_all();
    const bool done = changed_.wait_for(lock, patience, [this] { return done_; });
    left_ = !done;
    return done;
  }

  void run() {
    open();
    while (true) {
      const std::vector<TimedRecord> records = take();
      if (records.empty()) break;
      if (!run_ && std::chrono::steady_clock::now() >= next_open_) open();
      if (run_) attempt([&] { run_->append(records); });
    }
    if (!run_) open();
    if (run_) attempt([&] { run_->append({}); });  // lines that are kept
    if (run_) attempt([&] { run_->end(*status_); });
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

 private:
  // Waits for records; none: the writer ends.
  std::vector<TimedRecord> take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !queue_.empty() || status_; });
    std::vector<TimedRecord> records(std::make_move_iterator(queue_.begin()),
                                     std::make_move_iterator(queue_.end()));
    queue_.clear();
    return records;
  }

  void open() {
    next_open_ = std::chrono::steady_clock::now() + kBetweenOpens;
    attempt([&] { run_.emplace(options_, first_step_); });
  }

  template <class Action>
  void attempt(const Action& action) {
    try {
      action();
      failed_ = false;
    } catch (const std::exception& error) {
      if (!std::exchange(failed_, true)) say(error.what());
    }
  }

  void say(const std::string& cause) {
    const std::lock_guard lock(mutex_);
    if (left_) return;  // the log may be gone
    log_warning("output.mlflow: " + cause +
                ". The run goes on; steps that cannot be written are missing in MLflow");
  }

  const MlflowOptions options_;
  const std::int64_t first_step_;
  bool said_full_ = false;  // the caller's

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TimedRecord> queue_;
  std::optional<MlflowStatus> status_;  // set: the run has ended
  bool done_ = false;
  bool left_ = false;

  std::optional<MlflowRun> run_;
  std::chrono::steady_clock::time_point next_open_;
  bool failed_ = false;  // the last attempt failed, and the log says so
};

MlflowWriter::MlflowWriter(MlflowOptions options, std::int64_t first_step,
                           std::chrono::milliseconds patience)
    : shared_(std::make_shared<Shared>(std::move(options), first_step)), patience_(patience) {
  thread_ = std::thread([shared = shared_, rank = thread_rank()] {
    const ThreadRank here(rank);
    shared->run();
  });
}

MlflowWriter::~MlflowWriter() {
  if (thread_.joinable()) end(MlflowStatus::kFailed);
}

void MlflowWriter::write(const StepRecord& record) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  shared_->add({.unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count(),
                .record = record});
}

void MlflowWriter::end(MlflowStatus status) {
  if (shared_->end(status, patience_)) {
    thread_.join();
    return;
  }
  thread_.detach();
  log_warning("output.mlflow: the store did not take the last steps and the run's status within " +
              std::to_string(patience_.count() / 1000) + " s. The run ends without them");
}

}  // namespace sluice
