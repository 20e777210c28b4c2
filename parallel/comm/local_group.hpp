// The meeting place of communicators whose ranks are threads of one process.
//
// An operation: posted by some ranks --last rank posts--> ready --all shares ran--> done. A share
// is what one rank receives; whichever thread posts last or waits runs shares, so no thread of its
// own is needed and every call but wait() returns at once. Operations run one after another, in the
// order of posting. A failure (timeout, a rank that left, different calls, abort) is the group's
// end: it ends every operation that is not done, as soon as no share of it runs any more.
//
// Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
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

  // What one rank brings to an operation.
  struct Post {
    std::string name;  // of the operation
    DType dtype = DType::kFloat32;
    std::vector<ReduceScatterPiece> reduce_scatter{};  // {}: callers name only what they bring
    std::vector<AllGatherPiece> all_gather{};
    std::vector<double> values{};
    std::optional<TransferCall> transfer{};
    const void* sent = nullptr;  // of a send
    void* received = nullptr;    // of a receive
  };
  struct Operation {
    std::uint64_t seq = 0;
    std::vector<std::unique_ptr<Post>> posts;  // by rank; null: has not come
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
  // Throws the group's failure, or CommError after the timeout.
  void wait(int rank, Operation& operation);
  [[nodiscard]] bool done(const Operation& operation);
  void abort(int rank) noexcept;
  // The rank's communicator is destroyed: gives its operations kDrainGrace, then aborts; afterwards
  // nobody touches its memory.
  void leave(int rank) noexcept;

 private:
  // All REQUIRE the lock.
  void run_shares(std::unique_lock<std::mutex>& lock);
  void run_share(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Operation>& operation);
  const Failure& fail(const std::string& text, bool secondary) noexcept;  // the group's first
  void check_arrivals(int rank, const Operation& operation, bool timed_out);
  [[nodiscard]] bool ended(const Operation& operation) const;

  const std::string name_;
  const int size_;
  const std::chrono::milliseconds timeout_;

  std::mutex mutex_;
  // Guarded by mutex_:
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Operation>> pending_;  // not done, by seq
  std::vector<std::uint64_t> next_seq_;             // by rank
  std::vector<bool> left_;                          // by rank
  std::optional<Failure> failure_;
};

}  // namespace sluice
