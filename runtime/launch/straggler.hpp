// Names a rank that holds the others up. Pure: what the ranks measured goes in, words come out.
//
// In a collective all ranks wait for the last that arrives. So of the time between two looks, the
// rank that is slowest waits least: its busy time (steps less what it waited in collectives) is
// more than the others', and what they waited for it is what its busy time is above theirs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sluice {

struct StragglerOptions {
  double least_excess = 0.25;  // busy time above the others' median, as a share of it
  double least_ms = 1;         // ... and in milliseconds a step: below it is scheduling noise
  int looks = 2;               // in a row that agree, before it is said
  int repeat_after = 20;       // looks in a row until the same rank is named again
};

struct Straggler {
  int rank = 0;
  double busy_ms = 0;       // a step
  double others_ms = 0;     // the median of the others
  double share_waited = 0;  // of what the others waited: what this rank alone accounts for, <= 1
};

// The slowest of busy_ms (a step, by rank) where it is slow enough; nullopt for fewer than two
// ranks. `waited_ms`: what each waited, a step.
[[nodiscard]] std::optional<Straggler> find_straggler(std::span<const double> busy_ms,
                                                      std::span<const double> waited_ms,
                                                      const StragglerOptions& options = {});

// Over a run. Not thread-safe.
class StragglerWatch {
 public:
  // The name of each rank's host, by rank; empty ones are left out of the words.
  explicit StragglerWatch(std::vector<std::string> hosts, StragglerOptions options = {});

  // The line for the log: "rank 3 on node7 holds the others up: ..."; empty where there is nothing
  // to say. `steps`: how many the figures, which are sums, are of.
  [[nodiscard]] std::string look(std::span<const double> busy_ms, std::span<const double> waited_ms,
                                 std::int64_t steps);

 private:
  const std::vector<std::string> hosts_;
  const StragglerOptions options_;
  int rank_ = -1;  // that of the last looks
  int looks_ = 0;  // in a row
};

}  // namespace sluice
