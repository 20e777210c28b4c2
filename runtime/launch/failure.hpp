// Which rank failed first, and the words for it. Pure.
//
// Where one rank fails, others fail of it: their connections break, their collectives time out, the
// launcher ends them. So the ends are put into classes and the earliest of the best class is named:
//   primary    a report that is not secondary; death by a signal the launcher did not send; without
//   a
//              report, an exit code other than 0 before the launcher asked anybody to stop
//   secondary  a report that says so; an exit code without a report after the launcher asked
//   stopped    ended by the launcher's own signals, by exit code 130 after it asked, or by that
//   code
//              with a report that says so: a time limit, or a signal to one rank
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/launch/error_report.hpp"

namespace sluice {

enum class EndClass { kDone, kPrimary, kSecondary, kStopped };

struct RankEnd {
  int rank = 0;
  std::string host;
  std::string name = {};  // for messages; empty: "rank N on HOST"
  bool by_signal = false;
  int status = 0;  // exit code, or the signal's number
  std::int64_t time_ns = 0;
  bool asked = false;   // the launcher had sent SIGTERM before
  bool killed = false;  // the launcher had sent SIGKILL before
  std::optional<ErrorReport> report;
  std::string log_path;
  std::vector<std::string> last_lines;  // of the log
};

[[nodiscard]] EndClass classify(const RankEnd& end);
// The rank itself says that it was stopped: it has finished its step, and the others do so too.
[[nodiscard]] bool stopped_in_order(const RankEnd& end);

// nullptr where no rank failed of itself (all done or stopped).
[[nodiscard]] const RankEnd* first_failure(std::span<const RankEnd> ends);
// nullptr where no rank stopped in order.
[[nodiscard]] const RankEnd* first_stop(std::span<const RankEnd> ends);

// Its message; else how it ended.
[[nodiscard]] std::string headline(const RankEnd& end);

// "rank 1 on host7 failed: ..." and, indented, the exit code or signal, the log's path and, where
// the rank left no message, the log's last lines. With a line break at the end.
[[nodiscard]] std::string describe_failure(const RankEnd& end);

// Whether the run may get further when it is started again: not where the rank said that its
// failure recurs, nor where it said nothing and its exit code speaks of the configuration.
[[nodiscard]] bool worth_restarting(const RankEnd& end);

// The rank's exit code; 5 where a signal ended it.
[[nodiscard]] int exit_code_of(const RankEnd& end);

}  // namespace sluice
