#include "runtime/engine/save_clock.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/base/log.hpp"

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{200};
// Between a vote that lets the run go on and the end there are a round (a step and what follows it:
// an evaluation, a save that the steps wait for), the step of the vote that stops it, and a save,
// which may take half as long again as the last.
constexpr double kSaves = 1.5;
constexpr double kMarginSeconds = 2;

double seconds_between(SaveClock::Clock::time_point begin, SaveClock::Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

SaveClock::SaveClock(SaveClockOptions options, Clock::time_point started)
    : options_(std::move(options)),
      started_(started),
      last_save_(Clock::now()),
      last_look_(last_save_ - kBetweenLooks),
      save_seconds_(options_.first_save_estimate_seconds) {}

SaveVote SaveClock::vote(Clock::time_point now) {
  if (last_vote_) longest_round_ = std::max(longest_round_, seconds_between(*last_vote_, now));
  last_vote_ = now;
  const double limit = options_.time_limit_seconds;
  if (limit > 0) {
    const double reserve = std::max(longest_round_, longest_step_) + longest_step_ +
                           kSaves * save_seconds_ + std::min(kMarginSeconds, 0.1 * limit);
    limit_reached_ = limit_reached_ || seconds_between(started_, now) + reserve >= limit;
    if (limit_reached_) return SaveVote::kStop;
  }
  const bool due =
      options_.every_seconds > 0 && seconds_between(last_save_, now) >= options_.every_seconds;
  // Both are looked at: a request is not to stay for a second save.
  const bool asked = requested(now);
  return due || asked ? SaveVote::kSave : SaveVote::kNone;
}

void SaveClock::step_took(double seconds) { longest_step_ = std::max(longest_step_, seconds); }

void SaveClock::saved(Clock::time_point now, double seconds) {
  last_save_ = now;
  save_took(seconds);
}

void SaveClock::save_took(double seconds) {
  if (seconds > 0) save_seconds_ = seconds;
}

bool SaveClock::requested(Clock::time_point now) {
  if (!looks_ || options_.request_file.empty() || now - last_look_ < kBetweenLooks) return false;
  last_look_ = now;
  if (::access(options_.request_file.c_str(), F_OK) != 0) return false;
  if (::unlink(options_.request_file.c_str()) == 0) return true;
  if (errno == ENOENT) return false;
  log_warning("cannot remove " + options_.request_file + ": " + std::strerror(errno) +
              "; it is not looked at again, so that the run is not saved at every step");
  looks_ = false;
  return true;
}

}  // namespace sluice
