#include "runtime/run/step_pace.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "base/posix/host_name.hpp"
#include "parallel/comm/text_exchange.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kLeastSteps = 10;  // over fewer steps, scheduling noise dominates

double ms(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

StepPace::StepPace(Communicator& comm, std::int64_t log_every)
    : comm_(comm), every_(std::max(log_every, kLeastSteps)) {}

void StepPace::stop_waiting(Clock::time_point now) {
  if (waiting_since_) step_waited_ms_ += ms(now - *waiting_since_);
  waiting_since_.reset();
}

void StepPace::on_phase(bool waiting) {
  if (!in_step_ || comm_.size() == 1) return;
  const Clock::time_point now = Clock::now();
  stop_waiting(now);
  if (waiting) waiting_since_ = now;
}

void StepPace::begin_step() {
  step_began_ = Clock::now();
  waiting_since_.reset();
  step_waited_ms_ = 0;
  in_step_ = true;
}

std::string StepPace::end_step(std::int64_t step) {
  in_step_ = false;
  if (comm_.size() == 1) return {};
  const Clock::time_point now = Clock::now();
  stop_waiting(now);
  busy_ms_ += std::max(ms(now - step_began_) - step_waited_ms_, 0.0);
  waited_ms_ += step_waited_ms_;
  ++steps_;
  if (step % every_ != 0) return {};
  const std::array<double, 2> mine{busy_ms_, waited_ms_};
  const std::vector<double> all = comm_.all_gather_values(mine);
  if (!watch_) watch_.emplace(exchange_text(comm_, host_name()));
  std::vector<double> busy;
  std::vector<double> waited;
  for (std::size_t i = 0; i + 1 < all.size(); i += 2) {
    busy.push_back(all[i]);
    waited.push_back(all[i + 1]);
  }
  // All ranks began to count in the same step.
  const std::string line = watch_->look(busy, waited, steps_);
  busy_ms_ = waited_ms_ = 0;
  steps_ = 0;
  return line;
}

}  // namespace sluice
