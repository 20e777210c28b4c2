// Runs the operations of one communicator in the order of the calls, on a thread of its own.
//
// clang-format off
//   open --a body throws, or abort()--> failed      queued operations and later submits get the error
//   open --destructor--> draining --empty, or abort() after the grace period--> thread joined
// clang-format on
//
// Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "parallel/comm/ticket.hpp"

namespace sluice {

// Group and rank in the messages of a communicator.
struct GroupName {
  std::string group;
  int rank = 0;
  int size = 1;
};
// "reduce_scatter #12 of group world failed on rank 1 of 4: <why>"
[[nodiscard]] std::string describe_failure(const GroupName& name, const std::string& op,
                                           std::uint64_t seq, const std::string& why);
// "rank 2", "ranks 2, 3"
[[nodiscard]] std::string describe_ranks(const std::vector<int>& ranks);

// An error as a value: every waiting thread throws an exception object of its own.
struct Failure {
  std::string text;
  bool secondary = true;
  [[noreturn]] void raise() const;  // CommError
};
[[nodiscard]] Failure failure_of(const std::exception& error);

// How long a destructor waits for operations in flight before it aborts them, and an abort for
// their end.
inline constexpr std::chrono::milliseconds kDrainGrace{3000};

// The state behind a Ticket: one thread sets the result, others wait for it.
class Completion final : public TicketState {
 public:
  void finish(std::optional<Failure> failure);
  void wait() override;
  [[nodiscard]] bool done() override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::optional<Failure> failure_;
};

class OpQueue {
 public:
  struct Hooks {
    // Called on any thread: makes a waiting body throw soon. Must not throw.
    std::function<void()> interrupt;
    // Called once on the queue's thread after a failure, when no body runs any more.
    std::function<void()> broken;
  };
  // `grace`: how long the destructor waits for queued operations, and abort() for the running one.
  OpQueue(GroupName name, Hooks hooks, std::chrono::milliseconds grace = kDrainGrace);
  ~OpQueue();
  OpQueue(const OpQueue&) = delete;
  OpQueue& operator=(const OpQueue&) = delete;

  // Runs `body` on the queue's thread. An exception of the body is the Ticket's error, as a
  // CommError, and fails the queue. submit() throws the first failure of a failed queue.
  [[nodiscard]] Ticket submit(std::function<void()> body);
  // Fails the queue and waits, for the grace at most, until no body runs and every Ticket is done:
  // the caller may then free the memory of its operations. A body may not call it.
  void abort() noexcept;

 private:
  struct Item {
    std::function<void()> body;
    std::shared_ptr<Completion> completion;
  };
  void run();
  void run_one(std::unique_lock<std::mutex>& lock);

  const GroupName name_;
  const Hooks hooks_;
  const std::chrono::milliseconds grace_;
  std::mutex mutex_;
  // Guarded by mutex_:
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::deque<Item> items_;
  std::optional<Failure> failure_;  // the first one
  bool running_ = false;
  bool closed_ = false;
  bool stop_ = false;

  std::thread thread_;  // last: starts after all other members exist
};

}  // namespace sluice
