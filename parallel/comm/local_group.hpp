// The state that communicators share whose ranks are threads of one process.
//
//   operation: posted by some ranks --last rank posts--> ready --all shares have run--> done
//
// A share is the work for one receiving rank. The thread that posts last and threads that wait run
// the shares, so the group needs no thread of its own, and every call but wait() returns at once.
// Operations run one after another in posting order. A failure (timeout, a rank that left,
// different calls, abort) ends the group: every unfinished operation ends once none of its shares
// runs.
//
// Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/communicator.hpp"
#include "parallel/comm/op_queue.hpp"
#include "parallel/comm/transfer.hpp"

namespace sluice {

class LocalGroup {
 public:
  using Clock = std::chrono::steady_clock;

  // The arguments of one rank's call.
  struct Post {
    std::string name;  // of the operation
    ReduceDtype dtype = DType::kFloat32;
    std::vector<ReduceScatterPiece> reduce_scatter{};  // {}: callers set only the fields they need
    std::vector<AllGatherPiece> all_gather{};
    std::vector<std::byte> bytes{};
    std::optional<TransferCall> transfer{};
    const void* sent = nullptr;  // memory of a send
    void* received = nullptr;    // memory of a receive
  };
  struct Operation {
    std::uint64_t seq = 0;
    std::vector<std::unique_ptr<Post>> posts;  // by rank; null: the rank has not called
    int posted = 0;
    int next_share = 0;
    int running = 0;
    int ran = 0;
    [[nodiscard]] bool done() const { return ran == static_cast<int>(posts.size()); }
  };

  LocalGroup(std::string name, int size, std::chrono::milliseconds timeout);

  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] GroupName name_for(int rank) const { return {name_, rank, size_}; }
  [[nodiscard]] std::shared_ptr<Operation> post(int rank, Post post);
  // Throws the group's first failure, or CommError after the timeout.
  void wait(int rank, Operation& operation);
  [[nodiscard]] bool done(const Operation& operation);
  void abort(int rank) noexcept;
  // Called by the destructor of the rank's communicator. Waits kDrainGrace for the rank's
  // operations, then aborts the group. After the call no thread touches the rank's memory.
  void leave(int rank) noexcept;

 private:
  // REQUIRES: mutex_ is locked.
  void run_shares(std::unique_lock<std::mutex>& lock);
  void run_share(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Operation>& operation);
  // Returns the first failure of the group.
  const Failure& fail(const std::string& text, bool secondary) noexcept;
  void check_arrivals(int rank, const Operation& operation, bool timed_out);
  [[nodiscard]] bool ended(const Operation& operation) const;

  const std::string name_;
  const int size_;
  const std::chrono::milliseconds timeout_;

  std::mutex mutex_;
  // Guarded by mutex_:
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Operation>> pending_;  // unfinished, ordered by seq
  std::vector<std::uint64_t> next_seq_;             // by rank
  std::vector<bool> left_;                          // by rank
  std::optional<Failure> failure_;
};

}  // namespace sluice
