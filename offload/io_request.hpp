// The data of an IoQueue: requests, which are also the state behind their Tickets, and slots.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

#include "base/ticket.hpp"
#include "offload/extent_plan.hpp"

namespace sluice {

struct IoRequest final : TicketState {
  static constexpr int kFlush = -1;  // stands for the extent in a flush of all files

  // Constant after enqueue(), except that prepare() sets `end`.
  int extent = 0;
  bool write = false;
  std::byte* memory = nullptr;
  std::int64_t begin = 0, end = 0;              // in the extent
  std::int64_t cover_begin = 0, cover_end = 0;  // [begin, end) widened to whole transfers

  IoRequest* follows = nullptr;  // a request of the same chain that must be done before this starts
  // Called on the IO thread when the request starts: fills `memory` and returns the new `end`.
  std::function<std::int64_t()> prepare;

  // Touched by the IO thread alone.
  std::int64_t cursor = 0;  // transfers before the cursor have been started
  int in_flight = 0;        // transfers
  int blockers = 0;         // requests that must be done before this one starts
  std::vector<IoRequest*> dependents;

  void finish(std::exception_ptr error) noexcept {
    error_ = std::move(error);
    done_.store(true);
    done_.notify_all();
  }
  void wait() override {
    done_.wait(false);
    if (error_) std::rethrow_exception(error_);
  }
  [[nodiscard]] bool done() override { return done_.load(); }

 private:
  std::atomic<bool> done_{false};
  std::exception_ptr error_;  // written before done_
};

// One transfer in flight, or a free slot. Offsets are in the extent.
struct IoSlot {
  enum class Phase { kFill, kMove };

  IoRequest* request = nullptr;
  Phase phase = Phase::kMove;
  std::int64_t begin = 0, end = 0;            // bytes that move: whole sectors
  std::int64_t user_begin = 0, user_end = 0;  // the part of [begin, end) that the request asked for
  std::int64_t done = 0;                      // bytes moved in this phase
  int stuck = 0;                              // attempts in a row that moved nothing
  ExtentPlan::Place place = {};
  std::byte* memory = nullptr;  // the request's, or this slot's bounce buffer
  std::byte* bounce = nullptr;

  [[nodiscard]] bool bounced() const { return memory == bounce; }
  [[nodiscard]] bool writes() const { return request->write && phase == Phase::kMove; }
  [[nodiscard]] std::int64_t bytes() const { return end - begin; }
};

}  // namespace sluice
