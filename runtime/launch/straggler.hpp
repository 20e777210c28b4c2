// Names a rank that is slower than the others. Pure: measurements in, words out.
//
// In a collective all ranks wait for the last one. So the slowest rank waits least: its busy time
// (steps less waiting in collectives) exceeds the others' busy time. The excess is the time that
// the others wait for it.
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

// The rank with the largest busy_ms (a step, by rank) if it is slow enough; nullopt for fewer than
// two ranks. `waited_ms`: waiting of each rank, a step.
[[nodiscard]] std::optional<Straggler> find_straggler(std::span<const double> busy_ms,
                                                      std::span<const double> waited_ms,
                                                      const StragglerOptions& options = {});

// State over a run. Not thread-safe.
class StragglerWatch {
 public:
  // Host names by rank; the text omits empty names.
  explicit StragglerWatch(std::vector<std::string> hosts, StragglerOptions options = {});

  // The line for the log: "rank 3 on node7 holds the others up: ..."; empty if no rank is slow.
  // `steps`: number of steps in the figures, which are sums.
  [[nodiscard]] std::string look(std::span<const double> busy_ms, std::span<const double> waited_ms,
                                 std::int64_t steps);

 private:
  const std::vector<std::string> hosts_;
  const StragglerOptions options_;
  int rank_ = -1;  // that of the last looks
  int looks_ = 0;  // in a row
};

}  // namespace sluice
