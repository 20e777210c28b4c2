#include "runtime/launch/thread_ranks.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/thread_rank.hpp"
#include "runtime/launch/error_report.hpp"

namespace sluice {
namespace {

class ThreadRanks {
 public:
  ThreadRanks(const std::function<int(int)>& body, const std::function<void(int)>& fail_others)
      : body_(body), fail_others_(fail_others) {}

  void run(int rank) {
    const ThreadRank said(rank);
    try {
      const int code = body_(rank);
      if (code != 0) ended(code);
    } catch (const std::exception& error) {
      failed(rank, make_error_report(error));
    } catch (...) {
      failed(rank, make_error_report("an exception that is no std::exception", 5, false));
    }
  }

  void stop(int rank) {
    std::call_once(stopped_, [&] { fail_others_(rank); });
  }

  // After all have ended.
  int outcome() {
    if (!failure_) return code_;
    return report_failure(*failure_);
  }

 private:
  // A rank that was asked to stop, with all others.
  void ended(int code) {
    const std::lock_guard lock(mutex_);
    code_ = std::max(code_, code);
  }

  void failed(int rank, ErrorReport report) {
    {
      const std::lock_guard lock(mutex_);
      const auto order = [](const ErrorReport& r) { return std::pair(r.secondary, r.time_ns); };
      if (!failure_ || order(report) < order(*failure_)) failure_ = std::move(report);
    }
    stop(rank);
  }

  const std::function<int(int)>& body_;
  const std::function<void(int)>& fail_others_;
  std::once_flag stopped_;
  std::mutex mutex_;
  // Guarded by mutex_:
  int code_ = 0;
  std::optional<ErrorReport> failure_;
};

}  // namespace

int run_thread_ranks(int ranks, const std::function<int(int)>& body,
                     const std::function<void(int)>& fail_others) {
  check(ranks >= 1, "a run has at least one rank");
  ThreadRanks all(body, fail_others);
  std::vector<std::thread> threads;
  std::optional<std::string> problem;
  for (int rank = 0; rank < ranks && !problem; ++rank) {
    try {
      threads.emplace_back([&all, rank] { all.run(rank); });
    } catch (const std::system_error& error) {
      problem = format_text("cannot start rank {} as a thread: {}", rank, error_chain(error));
      if (rank > 0) all.stop(rank);
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (problem) throw Error(*problem);
  return all.outcome();
}

}  // namespace sluice
