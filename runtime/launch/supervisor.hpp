// Supervises the ranks of this host: carries their output, watches for their ends and for signals
// to the launcher, and ends all ranks when one fails.
//
//   running --a rank fails--> failing: SIGTERM to all, after kill_grace SIGKILL
//   running --SIGINT, SIGTERM, SIGHUP--> stopping: SIGTERM to all, after stop_grace SIGKILL
//   running --the reader of standard output ends, ends_with_reader--> stopping
//   running --a rank stops of itself--> stopping: the ranks agreed on it; after stop_grace SIGKILL
//   stopping --a rank fails--> failing          stopping --another signal--> SIGKILL at once
//   stopping --a rank dies of SIGTERM: it had no handler yet--> after kill_grace SIGKILL
//
// Signals go to whole process groups. After SIGKILL the supervisor waits kGoneLimit, then gives up
// on a process that the system cannot end. One thread, which must live as long as the ranks; it
// sleeps in poll.
//
// Over several hosts (agent.hpp) the launcher's supervisor has agents instead of ranks: it sends
// words instead of signals, and reads reports from their output. An agent's supervisor receives the
// words.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/launch/child_process.hpp"
#include "runtime/launch/failure.hpp"
#include "runtime/launch/rank_log.hpp"
#include "runtime/launch/stop_signal_fd.hpp"
#include "runtime/launch/terminal_screen.hpp"

namespace sluice {

struct RankPlan {
  int rank = 0;  // global
  ChildCommand command;
  std::string log_path;
  std::string error_path;
  bool on_terminal = false;
  bool agent = false;           // of another host; REQUIRES: command.keep_stdin. `rank` is its node
  std::string first_word = {};  // of an agent: on its standard input before all others
  std::string name = {};        // for messages; empty: "rank N on HOST"
  std::vector<std::string> printed_lines = {};  // by this process, on the same terminal
  std::string relayed = {};  // its lines also go to standard output, after this; empty: they do not
};

struct SupervisorOptions {
  std::chrono::milliseconds kill_grace{3000};
  std::chrono::milliseconds stop_grace{10000};
  int words_fd = -1;  // an agent's standard input; -1: this is no agent
  // The ranks are stopped once nobody reads standard output. Otherwise a closed reader is ignored.
  bool ends_with_reader = false;
};

struct SuperviseResult {
  std::vector<RankEnd> ends;
  bool interrupted = false;   // a signal to the launcher asked for the end, or its word
  std::vector<int> killed;    // ranks that did not end when asked
  std::vector<int> not_gone;  // ranks that the system could not end
  bool output_lost = false;   // standard output did not take all that the ranks printed
  bool reader_gone = false;   // ... since its reader had ended
};

class Supervisor {
 public:
  static constexpr std::chrono::milliseconds kGoneLimit{3000};

  Supervisor(const SupervisorOptions& options, StopSignalFd& signals, TerminalScreen& screen);
  ~Supervisor();  // kills and reaps what still runs
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Throws Error or IoError.
  void start(RankPlan plan);
  // Returns when all ranks have ended.
  [[nodiscard]] SuperviseResult run();
  // Drains the pipes, waiting at most so long for their ends. Afterwards the results' last lines
  // are complete. Call it when no process holds the pipes any more.
  void drain(std::chrono::milliseconds limit, SuperviseResult& result);

 private:
  using Clock = std::chrono::steady_clock;
  struct Stream;
  struct Rank;
  struct Watched;

  [[nodiscard]] std::size_t running() const;
  [[nodiscard]] std::vector<Watched> watched(bool streams_only);
  void wait_once(bool streams_only, std::optional<Clock::time_point> until);
  void on_signal(int signal);
  void on_words();
  void on_end(Rank& rank);
  void on_output(Rank& rank, Stream& stream);
  void stop_without_reader();
  void log_lines(Rank& rank, const std::string& lines);
  void relay(const Rank& rank, const std::string& lines);
  void ask_all(std::chrono::milliseconds grace, std::string_view word);
  void kill_all();

  const SupervisorOptions options_;
  StopSignalFd& signals_;
  TerminalScreen& screen_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  bool asked_ = false;
  bool killed_ = false;
  bool interrupted_ = false;
  bool words_ended_ = false;
  Clock::time_point interrupted_at_;
  std::optional<Clock::time_point> deadline_;  // of SIGKILL once asked, of giving up once killed
};

}  // namespace sluice
