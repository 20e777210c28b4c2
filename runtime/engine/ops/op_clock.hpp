// A GPU's times of a training step's operations, from events around each operation on the stream
// that runs it. No thread waits for an event.
//
// The host waits for the norm in any case. The events of the operations before NormAndScale have
// completed then, and read() takes their times. Those from NormAndScale on may still run when the
// step ends, so read() takes their times in the next step; they have two sets of events, which take
// turns.
//
//   step t      operations before the norm | norm, updates    read(): before the norm of t + 1,
//   step t + 1  operations before the norm | norm, updates            from the norm on of t
//
// Operations of the lanes host and disk keep the host's times. Threads: an operation's begin and
// end are recorded on the thread that runs the operation; all other calls on the executing thread.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/engine/device_events.hpp"
#include "runtime/engine/exchange_timing.hpp"
#include "runtime/program/executor.hpp"

namespace sluice {

class OpClock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit OpClock(std::unique_ptr<DeviceEvents> events) : events_(std::move(events)) {}

  // A program begins. `step`: a training step; operations of other programs are not timed.
  void begin_program(const Program& program, bool step);
  void waits(const Op& op);  // the executing thread is about to wait for the operation's `waits`
  void begins(const Op& op);
  void ends(const Op& op);
  void abandons() noexcept { (void)events_->leave_calls(); }  // instead of ends(), after an error
  // After the host has waited for the norm.
  void read();

  // Replaces the host's times by the device's of the last read(). Only durations are exact: at the
  // step's begin the device was behind the host, and all instants are early by that delay.
  void apply(std::vector<OpTiming>& timings) const;
  // Waits for the last step's operations and replaces the times in its timings and exchanges, on
  // the host's clock.
  void finish(std::vector<OpTiming>& timings, std::vector<ExchangeTiming>& exchanges);

  // For exchanges inside an operation: records an event and returns its number as a time, which
  // finish() replaces.
  [[nodiscard]] TimePoint stamp();

 private:
  using Event = std::unique_ptr<DeviceEvent>;
  struct OpEvents {
    Event wait, begin, end;
  };
  struct OpTimes {
    double wait_us, begin_us, end_us;  // on the host's clock
  };

  void make_events(const Program& program);
  [[nodiscard]] OpEvents& events_of(std::size_t op, int turn);
  [[nodiscard]] OpEvents& events_of(const Op& op);
  void read(std::size_t first, std::size_t end, int turn);
  void wait_for_all();

  const std::unique_ptr<DeviceEvents> events_;
  const Program* program_ = nullptr;
  bool active_ = false;  // a training step runs
  std::size_t norm_ = 0;
  int turn_ = 0;
  std::int64_t steps_ = 0;
  std::vector<OpEvents> head_;                 // before the norm
  std::array<std::vector<OpEvents>, 2> tail_;  // by turn
  std::array<Event, 2> base_;                  // by turn: the step begins
  std::array<double, 2> base_us_{};            // the same on the host's clock
  Event reference_;                            // recorded while the compute stream was idle
  std::vector<std::optional<OpTimes>> times_;  // of the last read()
  std::vector<Event> stamps_;
  std::size_t stamped_ = 0;
};

// Runs `body`, the operation, and records its begin and end. `clock`: null: not timed.
template <typename Body>
auto timed(OpClock* clock, const Op& op, const Body& body) {
  if (clock == nullptr) return body();
  struct Abandon {
    OpClock* clock;
    ~Abandon() {
      if (clock != nullptr) clock->abandons();
    }
  } open{clock};
  clock->begins(op);
  auto result = body();
  clock->ends(op);
  open.clock = nullptr;
  return result;
}

}  // namespace sluice
