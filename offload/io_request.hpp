// What an IoQueue works on: requests, each also what its Ticket points to, and transfers.
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
  // Constant after enqueue(); `end` from when it starts, where prepare() sets it.
  int extent = 0;
  bool write = false;
  std::byte* memory = nullptr;
  std::int64_t begin = 0, end = 0;              // in the extent
  std::int64_t cover_begin = 0, cover_end = 0;  // widened to what transfers touch

  std::uint64_t version = 0;     // of a header
  IoRequest* follows = nullptr;  // made with this one: it is done before this one starts
  // Fills the memory, on the queue's thread, when it starts, and says how much of it.
  std::function<std::int64_t()> prepare;

  // The thread's own.
  std::int64_t cursor = 0;  // what lies before it has been started
  int in_flight = 0;
  int blockers = 0;  // overlapping requests made before this one that are not done
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

// One transfer in flight, or a free place for one. Offsets are in the extent.
struct IoSlot {
  enum class Phase { kFill, kMove };

  IoRequest* request = nullptr;
  Phase phase = Phase::kMove;
  std::int64_t begin = 0, end = 0;            // what moves: whole sectors
  std::int64_t user_begin = 0, user_end = 0;  // the request's part of it
  std::int64_t done = 0;                      // bytes moved in this phase
  int stuck = 0;                              // attempts in a row that moved nothing
  ExtentPlan::Place place;
  std::byte* memory = nullptr;  // the request's, or this slot's bounce buffer
  std::byte* bounce = nullptr;

  [[nodiscard]] bool bounced() const { return memory == bounce; }
  [[nodiscard]] bool writes() const { return request->write && phase == Phase::kMove; }
  [[nodiscard]] std::int64_t bytes() const { return end - begin; }
};

}  // namespace sluice
