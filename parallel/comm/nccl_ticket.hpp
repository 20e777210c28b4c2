// Operations of an NCCL communicator, and the first failure of its group. In the CUDA module.
#pragma once

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ticket.hpp"
#include "parallel/comm/op_queue.hpp"

namespace sluice {

struct NcclOperation {
  std::string what;  // "all_gather #12 of group dp failed on rank 1 of 4: "
  at::cuda::CUDAEvent event;
};

// The operations in flight, and the first failure. An operation that c10d aborts completes on the
// GPU like any other, but without its data. c10d records the error before it aborts the operation.
// A caller that has seen an operation complete must therefore check for errors next. Thread-safe.
class GroupHealth {
 public:
  // `ask`: why NCCL has failed; "" if it has not.
  GroupHealth(std::string group, std::function<std::string()> ask)
      : group_(std::move(group)), ask_(std::move(ask)) {}

  void add(std::shared_ptr<NcclOperation> operation) {
    const std::lock_guard lock(mutex_);
    flying_.push_back(std::move(operation));
  }
  void fail(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = Failure{text};
  }
  [[nodiscard]] bool failed() {
    const std::lock_guard lock(mutex_);
    look();
    return failure_.has_value();
  }
  // Throws the first failure. It names the oldest operation in flight.
  void check() {
    const std::lock_guard lock(mutex_);
    look();
    if (failure_) failure_->raise();
  }
  // Throws as check(). Drops the completed operations and returns the number still in flight.
  std::size_t check_flying() {
    const std::lock_guard lock(mutex_);
    std::size_t done = 0;  // they complete in order
    while (done < flying_.size() && flying_[done]->event.query()) ++done;
    look();
    if (failure_) failure_->raise();
    flying_.erase(flying_.begin(), flying_.begin() + static_cast<std::ptrdiff_t>(done));
    return flying_.size();
  }
  // The group is about to end.
  void stop_asking() {
    const std::lock_guard lock(mutex_);
    ask_ = nullptr;
  }

 private:
  void look() {  // REQUIRES: mutex_
    if (failure_ || !ask_) return;
    const std::string why = ask_();
    if (why.empty()) return;
    failure_ = Failure{(flying_.empty() ? group_ + ": " : flying_.front()->what) + why};
  }

  const std::string group_;
  std::mutex mutex_;  // guards all below
  std::function<std::string()> ask_;
  std::deque<std::shared_ptr<NcclOperation>> flying_;
  std::optional<Failure> failure_;
};

// The NCCL groups of this process. Thread-safe.
class GroupsOfProcess {
 public:
  static GroupsOfProcess& all() {
    static GroupsOfProcess groups;
    return groups;
  }
  void add(const std::shared_ptr<GroupHealth>& group) {
    const std::lock_guard lock(mutex_);
    std::erase_if(groups_, [](const auto& known) { return known.expired(); });
    groups_.push_back(group);
  }
  // Throws the first failure of any.
  void check() {
    const std::lock_guard lock(mutex_);
    for (const auto& known : groups_) {
      if (const auto group = known.lock()) group->check();
    }
  }

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<GroupHealth>> groups_;
};

// wait() makes the calling thread's current stream wait; the host does not block. Thread-safe.
class NcclTicket final : public TicketState {
 public:
  NcclTicket(std::shared_ptr<GroupHealth> health, std::shared_ptr<NcclOperation> operation)
      : health_(std::move(health)), operation_(std::move(operation)) {}

  void wait() override {
    health_->check();
    at::cuda::CUDAEvent& event = operation_->event;
    event.block(c10::cuda::getCurrentCUDAStream(event.device_index()));
  }
  [[nodiscard]] bool done() override { return operation_->event.query() || health_->failed(); }

 private:
  const std::shared_ptr<GroupHealth> health_;
  const std::shared_ptr<NcclOperation> operation_;
};

}  // namespace sluice
