// The agent: this program on one of several hosts. It starts the ranks of its host for the launcher
// that started it (host_launcher.hpp).
//
// clang-format off
//   launcher -> agent   variable SLUICE_AGENT: its ranks; words on its standard input:
//                         "secret ..."    first of all: the job's secret (job_secret.hpp)
//                         "stop"          the run was interrupted: ranks finish their step
//                         "end"           another host failed: ranks end within kill_grace
//                         (end of input)  launcher or connection gone: SIGKILL at once
//   agent -> launcher   the ranks' output; after a rank failed, one record on standard error:
//                         0x1e "sluice " and the report (error_report.hpp) as a line of JSON
// clang-format on
//
// All functions are pure, except agent_place() and read_secret_word().
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
// Reads the secret, the launcher's first word; later words stay in the descriptor. Throws Error
// after another word, or if none arrives in time.
[[nodiscard]] std::string read_secret_word(int fd, std::chrono::milliseconds patience);

// The ranks of one agent: [first_rank, first_rank + nproc) of `world`, on host `node` of `nodes`.
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
// Of this process; nullopt if it is no agent.
[[nodiscard]] std::optional<AgentPlace> agent_place();

// The record, with its line break.
[[nodiscard]] std::string agent_record(const ErrorReport& report);

// Removes the record from a stream of output. All other bytes pass unchanged. A possible beginning
// of a record is held until more bytes decide. Not thread-safe.
class RecordFilter {
 public:
  [[nodiscard]] std::string feed(std::string_view bytes);
  // Returns the held bytes at the end of the stream.
  [[nodiscard]] std::string finish();
  [[nodiscard]] const std::optional<ErrorReport>& report() const { return report_; }

 private:
  std::string held_;
  std::optional<ErrorReport> report_;  // the last one
};

// Quotes any text as one word of a POSIX shell.
[[nodiscard]] std::string shell_quoted(std::string_view word);

// Exit codes of remote_command()'s shell on a host that lacks the folder or the program, or whose
// program cannot be executed. env(1) has the same two codes.
inline constexpr int kNotExecutable = 126;
inline constexpr int kNotThere = 127;
// The command line for the host's shell: "cd DIR || exit 127; exec env A=b ... PROGRAM
// ARGUMENT...".
[[nodiscard]] std::string remote_command(
    const std::string& folder, const std::vector<std::pair<std::string, std::string>>& environment,
    const std::string& executable, const std::vector<std::string>& arguments);

}  // namespace sluice
