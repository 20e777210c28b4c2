// The agent: this program on one of several hosts, where it starts that host's ranks for the
// launcher that started it (host_launcher.hpp).
//
//   launcher -> agent   the variable SLUICE_AGENT: which ranks; words on its standard input:
//                         "secret ..."  first of all: the job's secret (job_secret.hpp)
//                         "stop"  somebody interrupted the run: the ranks finish their step
//                         "end"   another host failed: the ranks end within kill_grace
//                         (end of input) the launcher or the connection is gone: SIGKILL at once
//   agent -> launcher   the ranks' output; where a rank failed, one record on standard error:
//                         0x1e "sluice " and the report (error_report.hpp) as a line of JSON
//
// All here is pure, but for agent_place() and read_secret_word().
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/launch/error_report.hpp"

namespace sluice {

inline constexpr std::string_view kAgentVariable = "SLUICE_AGENT";
inline constexpr std::string_view kStopWord = "stop\n";
inline constexpr std::string_view kEndWord = "end\n";

[[nodiscard]] std::string secret_word(std::string_view secret);
// The secret that an agent's launcher sends first; later words stay in the descriptor. Throws Error
// where another thing comes, or nothing within the patience.
[[nodiscard]] std::string read_secret_word(int fd, std::chrono::milliseconds patience);

// What one agent starts: ranks [first_rank, first_rank + nproc) of `world`, on host `node` of
// `nodes`.
struct AgentPlace {
  int node = 0;
  int nodes = 1;
  int first_rank = 0;
  int nproc = 1;
  int world = 1;
};
// "node=1,nodes=2,first=4,nproc=4,world=8", and back. Throws ConfigError.
[[nodiscard]] std::string agent_text(const AgentPlace& place);
[[nodiscard]] AgentPlace parse_agent(std::string_view text);
// Of this process; nullopt where it is no agent.
[[nodiscard]] std::optional<AgentPlace> agent_place();

// The record, with its line break.
[[nodiscard]] std::string agent_record(const ErrorReport& report);

// Takes the record out of a stream of output. Everything else passes, byte for byte; what may be
// the beginning of a record is held until that is known. Not thread-safe.
class RecordFilter {
 public:
  [[nodiscard]] std::string feed(std::string_view bytes);
  // What was held, at the end of the stream.
  [[nodiscard]] std::string finish();
  [[nodiscard]] const std::optional<ErrorReport>& report() const { return report_; }

 private:
  std::string held_;
  std::optional<ErrorReport> report_;  // the last one
};

// For a POSIX shell: one word, whatever is in it.
[[nodiscard]] std::string shell_quoted(std::string_view word);

// "cd DIR && exec env A=b ... PROGRAM ARGUMENT...": what the shell of the host runs.
[[nodiscard]] std::string remote_command(
    const std::string& folder, const std::vector<std::pair<std::string, std::string>>& environment,
    const std::string& executable, const std::vector<std::string>& arguments);

}  // namespace sluice
