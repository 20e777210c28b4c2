#include "runtime/launch/supervisor.hpp"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/posix/host_name.hpp"
#include "runtime/launch/hosts/agent.hpp"
#include "runtime/launch/stop_signal.hpp"

namespace sluice {

namespace {

// The part of the launcher's screen on which a stream appears.
enum class Shown { kNot, kOut, kErr };

}  // namespace

struct Supervisor::Stream {
  Descriptor fd;
  Shown shown = Shown::kNot;
  LineFolder folder;
  RecordFilter records;  // of an agent
};

struct Supervisor::Rank {
  RankPlan plan;
  RankLog log;
  ChildProcess process;
  std::vector<Stream> streams;  // standard output first
  std::optional<RankEnd> end;
  bool asked = false;
  bool killed = false;
};

// One descriptor of a poll and its owner.
struct Supervisor::Watched {
  pollfd poll;
  Rank* rank = nullptr;
  Stream* stream = nullptr;
  TerminalSink* sink = nullptr;
  bool words = false;
};

namespace {

// An agent's report is the failure of its host.
void take_report(RankEnd& end, const std::optional<ErrorReport>& report) {
  if (!report) return;
  end.report = report;
  end.by_signal = false;
  end.status = report->exit_code;
}

// A rank's is complete when it ends. That of a stop is nothing to keep.
std::optional<ErrorReport> report_at(const std::string& path) {
  std::optional<ErrorReport> report = read_error_report(path);
  if (report && report->stopped) ::unlink(path.c_str());
  return report;
}

}  // namespace

Supervisor::Supervisor(const SupervisorOptions& options, StopSignalFd& signals,
                       TerminalScreen& screen)
    : options_(options), signals_(signals), screen_(screen) {}

Supervisor::~Supervisor() {
  if (running() == 0) return;
  kill_all();
  const Clock::time_point limit = Clock::now() + kGoneLimit;
  while (running() > 0 && Clock::now() < limit) wait_once(false, limit);
}

void Supervisor::start(RankPlan plan) {
  const bool on_terminal = plan.on_terminal;
  RankLog log(plan.log_path);
  if (!plan.error_path.empty()) ::unlink(plan.error_path.c_str());
  ChildProcess process = start_child(plan.command, signals_.former_mask());
  if (!plan.first_word.empty()) {
    // Fits an empty pipe; an agent that is gone already is noticed by its end.
    (void)!::write(process.in.get(), plan.first_word.data(), plan.first_word.size());
  }
  auto rank = std::make_unique<Rank>(std::move(plan), std::move(log), std::move(process),
                                     std::vector<Stream>(), std::nullopt);
  const Shown out = on_terminal ? Shown::kOut : Shown::kNot;
  const Shown err = on_terminal ? Shown::kErr : Shown::kNot;
  rank->streams.push_back({std::move(rank->process.out), out, {}, {}});
  if (rank->process.err) rank->streams.push_back({std::move(rank->process.err), err, {}, {}});
  ranks_.push_back(std::move(rank));
}

std::size_t Supervisor::running() const {
  return static_cast<std::size_t>(
      std::count_if(ranks_.begin(), ranks_.end(), [](const auto& rank) { return !rank->end; }));
}

SuperviseResult Supervisor::run() {
  while (running() > 0) {
    wait_once(false, deadline_);
    if (deadline_ && Clock::now() >= *deadline_) {
      if (killed_) break;
      kill_all();
    }
  }
  SuperviseResult result;
  result.interrupted = interrupted_;
  for (const auto& rank : ranks_) {
    if (rank->killed) result.killed.push_back(rank->plan.rank);
    if (const std::optional<RankEnd>& end = rank->end; end) {
      result.ends.push_back(*end);
    } else {
      result.not_gone.push_back(rank->plan.rank);
    }
  }
  return result;
}

void Supervisor::drain(std::chrono::milliseconds limit, SuperviseResult& result) {
  const Clock::time_point until = Clock::now() + limit;
  while (Clock::now() < until && !watched(true).empty()) wait_once(true, until);
  for (const auto& rank : ranks_) {
    std::string rest;
    for (Stream& stream : rank->streams) {
      stream.folder.feed(stream.records.finish(), rest);
      stream.folder.finish(rest);
    }
    const std::optional<RankEnd>& ended = rank->end;
    if (!rank->plan.agent && ended && reported_failure(*ended) != nullptr) {
      rest += failure_text(*ended) + "\n";
    }
    log_lines(*rank, rest);
    for (RankEnd& end : result.ends) {
      if (end.rank != rank->plan.rank) continue;
      end.last_lines = rank->log.last_lines();
      for (const Stream& stream : rank->streams) take_report(end, stream.records.report());
    }
  }
}

// Output comes before ends, and standard output before standard error: the most likely order of
// simultaneous events.
std::vector<Supervisor::Watched> Supervisor::watched(bool streams_only) {
  std::vector<Watched> list;
  for (const auto& rank : ranks_) {
    for (Stream& stream : rank->streams) {
      if (stream.fd) list.push_back({{stream.fd.get(), POLLIN, 0}, rank.get(), &stream});
    }
  }
  if (streams_only) return list;
  list.push_back({{signals_.fd(), POLLIN, 0}});
  if (options_.words_fd >= 0 && !words_ended_) {
    list.push_back({.poll = {options_.words_fd, POLLIN, 0}, .words = true});
  }
  for (const auto& rank : ranks_) {
    if (!rank->end) list.push_back({{rank->process.pidfd.get(), POLLIN, 0}, rank.get()});
  }
  for (TerminalSink* sink : {&screen_.out(), &screen_.err()}) {
    if (sink->pending()) list.push_back({{sink->fd(), POLLOUT, 0}, nullptr, nullptr, sink});
  }
  return list;
}

void Supervisor::wait_once(bool streams_only, std::optional<Clock::time_point> until) {
  std::vector<Watched> list = watched(streams_only);
  std::vector<pollfd> polls;
  for (const Watched& entry : list) polls.push_back(entry.poll);
  int timeout_ms = -1;
  if (until) {
    // Rounded up: a timeout of 0 before the deadline would spin.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now());
    timeout_ms = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
  }
  if (::poll(polls.data(), polls.size(), timeout_ms) <= 0) return;  // EINTR: the caller comes again
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (polls[i].revents == 0) continue;
    const Watched& entry = list[i];
    if (entry.stream != nullptr) {
      on_output(*entry.rank, *entry.stream);
    } else if (entry.rank != nullptr) {
      on_end(*entry.rank);
    } else if (entry.sink != nullptr) {
      entry.sink->flush();
    } else if (entry.words) {
      on_words();
    } else {
      while (const std::optional<int> signal = signals_.next()) on_signal(*signal);
    }
  }
}

void Supervisor::on_output(Rank& rank, Stream& stream) {
  std::array<char, 65536> bytes;
  constexpr int kReads = 16;  // a rank that prints without end must not keep signals waiting
  std::string lines;
  for (int i = 0; i < kReads; ++i) {
    const ssize_t got = ::read(stream.fd.get(), bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) {
      stream.fd.reset();
      break;
    }
    std::string_view chunk(bytes.data(), static_cast<std::size_t>(got));
    std::string passed;
    if (rank.plan.agent) chunk = passed = stream.records.feed(chunk);
    if (stream.shown == Shown::kOut) {
      screen_.write_out(without_printed_lines(chunk, rank.plan.printed_lines));
      stop_without_reader();
    } else if (stream.shown == Shown::kErr) {
      screen_.write_err(without_printed_lines(chunk, rank.plan.printed_lines));
    }
    stream.folder.feed(chunk, lines);
  }
  log_lines(rank, lines);
}

void Supervisor::stop_without_reader() {
  if (!options_.ends_with_reader || interrupted_ || !screen_.out().reader_gone()) return;
  interrupted_ = true;
  interrupted_at_ = Clock::now();
  ask_all(options_.stop_grace, kStopWord);
}

void Supervisor::log_lines(Rank& rank, const std::string& lines) {
  if (!rank.log.append(lines)) {
    screen_.write_err(format_text("the log of rank {} is not complete: {}\n", rank.plan.rank,
                                  rank.log.problem()));
  }
  if (!rank.plan.relayed.empty()) relay(rank, lines);
}

void Supervisor::relay(const Rank& rank, const std::string& lines) {
  std::string prefixed;
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', begin), lines.size());
    prefixed += rank.plan.relayed + lines.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  screen_.write_out(prefixed);
}

void Supervisor::on_end(Rank& rank) {
  // Its group goes before it is reaped: until then the group's number cannot belong to anybody
  // else.
  ::kill(-rank.process.pid, SIGKILL);
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(rank.process.pid), &info, WEXITED | WNOHANG) != 0 ||
      info.si_pid == 0) {
    return;
  }
  RankEnd end{.rank = rank.plan.rank,
              .host = host_name(),
              .name = rank.plan.name,
              .by_signal = info.si_code != CLD_EXITED,
              .status = info.si_status,
              .time_ns = unix_time_ns(),
              .asked = rank.asked,
              .killed = rank.killed,
              .report = std::nullopt,
              .log_path = rank.plan.log_path,
              .last_lines = {}};
  if (!rank.plan.agent) end.report = report_at(rank.plan.error_path);
  for (const Stream& stream : rank.streams) take_report(end, stream.records.report());
  rank.end = end;
  if (end.status == 0 && !end.by_signal) return;
  if (interrupted_ && classify(end) == EndClass::kStopped) {
    // The signal came before the rank's handler. Other ranks may wait for this one in the
    // rendezvous, where they see no request.
    const bool too_early = rank.plan.agent ? !stopped_in_order(end) : end.by_signal;
    if (too_early && !killed_) ask_all(options_.kill_grace, kEndWord);
    return;
  }
  if (stopped_in_order(end)) {
    // Not asked: to a rank that has had a signal, another one means "at once".
    if (!deadline_) deadline_ = Clock::now() + options_.stop_grace;
    return;
  }
  if (!killed_) ask_all(options_.kill_grace, kEndWord);
}

// An agent's launcher speaks, or is gone.
void Supervisor::on_words() {
  std::array<char, 256> bytes;
  const ssize_t got = ::read(options_.words_fd, bytes.data(), bytes.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  interrupted_ = true;
  interrupted_at_ = Clock::now();
  if (got <= 0) {
    words_ended_ = true;
    kill_all();
    return;
  }
  // A word is far shorter than any piece into which a pipe or ssh cuts data.
  const std::string_view words(bytes.data(), static_cast<std::size_t>(got));
  if (words.find(kEndWord) != std::string_view::npos) {
    ask_all(options_.kill_grace, kEndWord);
  } else {
    ask_all(options_.stop_grace, kStopWord);
  }
}

void Supervisor::on_signal(int signal) {
  if (interrupted_) {
    // timeout(1) and batch systems send SIGTERM to a process and to its group: one request.
    const bool same_request = signal == SIGTERM && Clock::now() - interrupted_at_ < kSameRequest;
    if (same_request || killed_) return;
    screen_.write_err("killing the ranks\n");
    kill_all();
    return;
  }
  interrupted_ = true;
  interrupted_at_ = Clock::now();
  screen_.write_err("\nstopping: the ranks finish their step (Ctrl-C again kills them)\n");
  ask_all(options_.stop_grace, kStopWord);
}

void Supervisor::ask_all(std::chrono::milliseconds grace, std::string_view word) {
  const Clock::time_point kill_at = Clock::now() + grace;
  deadline_ = std::min(deadline_.value_or(kill_at), kill_at);
  for (const auto& rank : ranks_) {
    if (!rank->plan.agent || rank->end) continue;
    rank->asked = true;
    // An agent that does not read is killed like one that does not end.
    (void)!::write(rank->process.in.get(), word.data(), word.size());
  }
  // Once: a second SIGTERM means "at once" to a rank.
  if (std::exchange(asked_, true)) return;
  for (const auto& rank : ranks_) {
    if (rank->end || rank->plan.agent) continue;
    rank->asked = true;
    ::kill(-rank->process.pid, SIGTERM);
  }
}

void Supervisor::kill_all() {
  killed_ = true;
  deadline_ = Clock::now() + kGoneLimit;
  for (const auto& rank : ranks_) {
    if (rank->end) continue;
    rank->asked = true;
    rank->killed = true;
    ::kill(-rank->process.pid, SIGKILL);
  }
}

}  // namespace sluice
