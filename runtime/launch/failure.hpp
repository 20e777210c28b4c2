// Which rank failed first, and the words for it. Pure.
//
// One failure causes others: connections break, collectives time out, the launcher ends the other
// ranks. The ends are sorted into classes; the earliest end of the best class is the first failure.
//   primary    a report that is not secondary; death by a signal that the launcher did not send; an
//              exit code other than 0 without a report, before the launcher asked ranks to stop
//   secondary  a report marked secondary; an exit code without a report after the launcher asked
//   stopped    ended by the launcher's signals; exit code 130 after the launcher asked, or with a
//              report marked stopped (a time limit, or a signal to one rank)
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
// The rank reported that it stopped: it has finished its step, and the other ranks stop too.
[[nodiscard]] bool stopped_in_order(const RankEnd& end);

// nullptr if no rank failed by itself (all done or stopped).
[[nodiscard]] const RankEnd* first_failure(std::span<const RankEnd> ends);
// nullptr if no rank stopped in order.
[[nodiscard]] const RankEnd* first_stop(std::span<const RankEnd> ends);

// The message of the rank's report; nullptr if it left none, or reported a stop.
[[nodiscard]] const std::string* reported_failure(const RankEnd& end);
// The report's message; without a report the way in which the rank ended.
[[nodiscard]] std::string headline(const RankEnd& end);

// "rank 1 on host7 failed: ...", without a line break at the end.
[[nodiscard]] std::string failure_text(const RankEnd& end);
// failure_text and, indented, exit code or signal, path of the log and, without a report, the
// log's last lines. Ends with a line break.
[[nodiscard]] std::string describe_failure(const RankEnd& end);

// A line with the other ranks that crashed: a signal that the launcher did not send ended them, so
// they may have left files. "" if there is none.
[[nodiscard]] std::string describe_other_crashes(std::span<const RankEnd> ends,
                                                 const RankEnd& failure);

// Whether a restart may help. False if the report says that the failure recurs, or if there is no
// report and the exit code means a configuration error.
[[nodiscard]] bool worth_restarting(const RankEnd& end);

// The rank's exit code; 5 after a signal.
[[nodiscard]] int exit_code_of(const RankEnd& end);

}  // namespace sluice
