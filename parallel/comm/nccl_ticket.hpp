// Operations of an NCCL communicator, and the first failure of its group. In the CUDA module.
#pragma once

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "base/ticket.hpp"
#include "parallel/comm/op_queue.hpp"
#include "parallel/comm/rendezvous_bridge.hpp"

namespace sluice {

using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

// The first failure of the group. Thread-safe.
class GroupHealth {
 public:
  void fail(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = Failure{text};
  }
  void check_alive() {
    const std::lock_guard lock(mutex_);
    if (failure_) failure_->raise();
  }

 private:
  std::mutex mutex_;
  std::optional<Failure> failure_;
};

// wait() lets the calling thread's stream wait. Thread-safe.
class NcclTicket final : public TicketState {
 public:
  NcclTicket(std::shared_ptr<GroupHealth> health, std::string what, at::cuda::CUDAEvent event,
             Works works)
      : health_(std::move(health)),
        what_(std::move(what)),
        event_(std::move(event)),
        works_(std::move(works)) {}

  void wait() override {
    check_errors();
    event_.block(c10::cuda::getCurrentCUDAStream(event_.device_index()));
  }
  [[nodiscard]] bool done() override {
    const std::lock_guard lock(mutex_);
    if (!finished_) finished_ = event_.query() || failed();
    return finished_;
  }
  // Throws the operation's error, or the group's first error.
  void check_errors() {
    const std::lock_guard lock(mutex_);
    health_->check_alive();
    for (const auto& work : works_) {
      if (const std::exception_ptr error = work->exception()) report(error);
    }
    health_->check_alive();
  }

 private:
  bool failed() {
    for (const auto& work : works_) {
      if (work->exception()) return true;
    }
    return false;
  }
  void report(const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& cause) {
      health_->fail(what_ + first_line(cause));
    }
  }

  const std::shared_ptr<GroupHealth> health_;
  const std::string what_;
  std::mutex mutex_;
  at::cuda::CUDAEvent event_;
  Works works_;
  bool finished_ = false;
};

}  // namespace sluice
