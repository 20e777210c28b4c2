// Decides when a run is saved and when the run must stop for its time limit. Only rank 0's clock
// votes, at the begin of each step. Not thread-safe.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "runtime/checkpoint/checkpoint_options.hpp"

namespace sluice {

// A rank's vote; the largest vote wins.
enum class SaveVote { kNone = 0, kSave = 1, kStop = 2 };

struct SaveClockOptions {
  double every_seconds = 0;                // 0: no saves by time
  double time_limit_seconds = 0;           // 0: none
  std::string request_file;                // output.dir/save-now
  double first_save_estimate_seconds = 0;  // assumed save time before the first save
};

class SaveClock {
 public:
  using Clock = std::chrono::steady_clock;
  SaveClock(SaveClockOptions options, Clock::time_point started);

  // The vote for the step that begins now. Removes a request file.
  [[nodiscard]] SaveVote vote(Clock::time_point now);
  // True once vote() has returned kStop because of the time limit.
  [[nodiscard]] bool limit_reached() const { return limit_reached_; }

  void step_took(double seconds);
  // Called when a save behind the steps has begun, or a synchronous save has ended. `seconds`: the
  // time of the last successful save; 0: none.
  void saved(Clock::time_point now, double seconds);
  void save_took(double seconds);  // the time of the last successful save; 0: none
  // `under_way_since`: begin of the save that runs behind the steps; nullopt: none. The last save
  // waits for that save. `due_next`: a save is due after the next step.
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
  double longest_round_ = 0;  // seconds from one vote to the next
  double longest_step_ = 0;
  double save_seconds_;
  std::optional<Clock::time_point> under_way_since_;
  bool due_next_ = false;
  bool limit_reached_ = false;
  bool looks_ = true;
};

}  // namespace sluice
