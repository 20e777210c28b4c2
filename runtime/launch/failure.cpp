#include "runtime/launch/failure.hpp"

#include <string.h>  // sigabbrev_np, sigdescr_np

#include <algorithm>
#include <csignal>

#include "base/format.hpp"
#include "base/host_faults.hpp"
#include "runtime/launch/stop_signal.hpp"

namespace sluice {
namespace {

std::string signal_text(int signal) {
  const char* name = ::sigabbrev_np(signal);
  const char* meaning = ::sigdescr_np(signal);
  if (name == nullptr || meaning == nullptr) return format_text("signal {}", signal);
  return "SIG" + std::string(name) + " (" + meaning + ")";
}

std::string how_it_ended(const RankEnd& end) {
  if (end.by_signal) return "killed by " + signal_text(end.status);
  return format_text("exit code {}", end.status);
}

// What report_failure() prints where it cannot write a report, as in a folder that was removed.
// Empty: nothing.
std::string printed_failure(const RankEnd& end) {
  const std::string begin = format_text("rank {} on {} failed: ", end.rank, end.host);
  const auto line = std::find_if(end.last_lines.rbegin(), end.last_lines.rend(),
                                 [&](const std::string& text) { return text.starts_with(begin); });
  return line == end.last_lines.rend() ? "" : line->substr(begin.size());
}

}  // namespace

bool stopped_in_order(const RankEnd& end) {
  return end.report && end.report->stopped && !end.by_signal && end.status == kInterruptedExitCode;
}

// A rank that crashes after its report of a stop has crashed.
const std::string* reported_failure(const RankEnd& end) {
  if (!end.report || end.report->stopped || end.report->message.empty()) return nullptr;
  return &end.report->message;
}

std::string headline(const RankEnd& end) {
  if (const std::string* message = reported_failure(end)) return *message;
  if (std::string printed = printed_failure(end); !printed.empty()) return printed;
  std::string text = how_it_ended(end);
  if (!end.by_signal && end.status == kInterruptedExitCode) {
    return text + ": a second SIGTERM or SIGINT ended it at once";
  }
  if (!end.by_signal) return text + ", without a message";
  if (end.status == SIGKILL) {
    text +=
        "; the system sends this signal when memory runs out (see dmesg), unless a person or a "
        "scheduler sent it";
  }
  return text;
}

namespace {

std::int64_t time_of(const RankEnd& end) { return end.report ? end.report->time_ns : end.time_ns; }

std::string indented(const std::string& text) {
  std::string result;
  for (const char c : text) {
    result += c;
    if (c == '\n') result += "    ";
  }
  while (!result.empty() && (result.back() == ' ' || result.back() == '\n')) result.pop_back();
  return result;
}

}  // namespace

EndClass classify(const RankEnd& end) {
  if (!end.by_signal && end.status == 0) return EndClass::kDone;
  if (stopped_in_order(end)) return EndClass::kStopped;
  const bool ours = end.by_signal &&
                    ((end.asked && end.status == SIGTERM) || (end.killed && end.status == SIGKILL));
  // After its report of a stop, the launcher may have asked the rank to end for another's failure.
  if (ours && (!end.report || end.report->stopped)) return EndClass::kStopped;
  if (end.report) return end.report->secondary ? EndClass::kSecondary : EndClass::kPrimary;
  if (end.by_signal) return EndClass::kPrimary;
  if (!end.asked) return EndClass::kPrimary;
  return end.status == kInterruptedExitCode ? EndClass::kStopped : EndClass::kSecondary;
}

const RankEnd* first_failure(std::span<const RankEnd> ends) {
  const RankEnd* first = nullptr;
  for (const EndClass wanted : {EndClass::kPrimary, EndClass::kSecondary}) {
    for (const RankEnd& end : ends) {
      if (classify(end) != wanted) continue;
      if (first == nullptr || time_of(end) < time_of(*first)) first = &end;
    }
    if (first != nullptr) return first;
  }
  return nullptr;
}

const RankEnd* first_stop(std::span<const RankEnd> ends) {
  const auto found = std::find_if(ends.begin(), ends.end(), stopped_in_order);
  return found == ends.end() ? nullptr : &*found;
}

std::string failure_text(const RankEnd& end) {
  const std::string& host = end.report ? end.report->host : end.host;
  const int rank = end.report ? end.report->rank : end.rank;
  std::string text = format_text("rank {} on {}", rank, host);
  if (!end.name.empty() && !end.report) text = end.name;
  return text + " failed: " + indented(headline(end));
}

std::string describe_failure(const RankEnd& end) {
  const bool has_message = reported_failure(end) != nullptr;
  std::string text = failure_text(end) + "\n  ";
  if (has_message) text += how_it_ended(end) + "; ";
  text += "its log: " + end.log_path;
  if (has_message) return text + "\n";
  if (end.last_lines.empty()) return text + ", which is empty\n";
  text += ", which ends\n";
  std::string lines;
  for (const std::string& line : end.last_lines) lines += "    | " + line + "\n";
  const std::string known = with_remedy(lines);
  return text + lines + (known == lines ? "" : "  " + process_limit_remedy() + "\n");
}

std::string describe_other_crashes(std::span<const RankEnd> ends, const RankEnd& failure) {
  std::string others;
  for (const RankEnd& end : ends) {
    if (&end == &failure || !end.by_signal || classify(end) == EndClass::kStopped) continue;
    others += format_text("{}rank {} ({})", others.empty() ? "" : ", ", end.rank,
                          signal_text(end.status));
  }
  return others.empty() ? "" : "crashed as well: " + others + "\n";
}

bool worth_restarting(const RankEnd& end) {
  if (end.report) return !end.report->recurs;
  constexpr int kConfiguration = 2;
  constexpr int kDoesNotFit = 3;
  return end.by_signal || (end.status != kConfiguration && end.status != kDoesNotFit);
}

int exit_code_of(const RankEnd& end) { return end.by_signal ? 5 : end.status; }

}  // namespace sluice
