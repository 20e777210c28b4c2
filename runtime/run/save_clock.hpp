// When a run is saved, and when it has to stop for its time limit: what rank 0 tells the others at
// a step's begin. The other ranks have no clock: they follow. Not thread-safe.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "runtime/checkpoint/checkpoint_options.hpp"

namespace sluice {

// What a rank votes for; the largest wins.
enum class SaveVote { kNone = 0, kSave = 1, kStop = 2 };

struct SaveClockOptions {
  double every_seconds = 0;                // 0: not by time
  double time_limit_seconds = 0;           // 0: none
  std::string request_file;                // output.dir/save-now
  double first_save_estimate_seconds = 0;  // how long a save takes, before the first
};

class SaveClock {
 public:
  using Clock = std::chrono::steady_clock;
  SaveClock(SaveClockOptions options, Clock::time_point started);

  // For the step that begins now. A request file is taken (removed).
  [[nodiscard]] SaveVote vote(Clock::time_point now);
  // True once vote() has asked for the end because of the limit.
  [[nodiscard]] bool limit_reached() const { return limit_reached_; }

  void step_took(double seconds);
  void saved(Clock::time_point now, double seconds);  // one was begun; how long the last one took
  void save_took(double seconds);                     // the last one; 0: there was none
  // Since when one is written behind the steps (nullopt: none is), which the last one waits for;
  // and whether one is due after the step that begins next.
  void expect(std::optional<Clock::time_point> under_way_since, bool due_next);

 private:
  [[nodiscard]] double reserve(Clock::time_point now, bool save_follows) const;
  [[nodiscard]] bool limit_is_near(Clock::time_point now, bool save_follows);
  [[nodiscard]] bool requested(Clock::time_point now);

  const SaveClockOptions options_;
  const Clock::time_point started_;
  Clock::time_point last_save_;
  Clock::time_point last_look_;
  std::optional<Clock::time_point> last_vote_;
  double longest_round_ = 0;  // from one vote to the next
  double longest_step_ = 0;
  double save_seconds_;
  std::optional<Clock::time_point> under_way_since_;
  bool due_next_ = false;
  bool limit_reached_ = false;
  bool looks_ = true;
};

}  // namespace sluice
