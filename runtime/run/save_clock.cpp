#include "runtime/run/save_clock.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.hpp"

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{200};
// From a vote to continue, up to the run's end, the reserve covers one round (a step, its
// evaluation, a save that steps wait for), the step of the stop vote, the rest of a save under way,
// a save that begins in the round, and the last save. Each save may take kSaves times as long as
// the save before.
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
  if (limit_is_near(now, due_next_)) return SaveVote::kStop;
  const bool due =
      options_.every_seconds > 0 && seconds_between(last_save_, now) >= options_.every_seconds;
  // Takes the request even if a save is due, so the request causes no second save.
  const bool asked = requested(now);
  if (!due && !asked) return SaveVote::kNone;
  return limit_is_near(now, true) ? SaveVote::kStop : SaveVote::kSave;
}

// Seconds. A save under way runs beside the steps, so only its time after the steps counts. If the
// save under way is slower than the last save, its time replaces the last one's. A save that
// follows adds to the longest step: the longest round may already contain a save.
double SaveClock::reserve(Clock::time_point now, bool save_follows) const {
  double save = save_seconds_;
  double left = 0;
  if (under_way_since_) {
    const double so_far = seconds_between(*under_way_since_, now);
    save = std::max(save, so_far);
    left = kSaves * save - so_far;
  }
  const double round = std::max(longest_round_, longest_step_);
  double busy = std::max(round + longest_step_, left);
  if (save_follows) {
    busy = std::max(busy, std::max(longest_step_, left) + kSaves * save + longest_step_);
  }
  return busy + kSaves * save + std::min(kMarginSeconds, 0.1 * options_.time_limit_seconds);
}

bool SaveClock::limit_is_near(Clock::time_point now, bool save_follows) {
  const double limit = options_.time_limit_seconds;
  if (limit > 0 && seconds_between(started_, now) + reserve(now, save_follows) >= limit) {
    limit_reached_ = true;
  }
  return limit_reached_;
}

void SaveClock::step_took(double seconds) { longest_step_ = std::max(longest_step_, seconds); }

void SaveClock::saved(Clock::time_point now, double seconds) {
  last_save_ = now;
  save_took(seconds);
}

void SaveClock::save_took(double seconds) {
  if (seconds > 0) save_seconds_ = seconds;
}

void SaveClock::expect(std::optional<Clock::time_point> under_way_since, bool due_next) {
  under_way_since_ = under_way_since;
  due_next_ = due_next;
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
