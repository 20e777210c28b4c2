#include "runtime/launch/supervision.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/posix/host_name.hpp"
#include "base/posix/io_error.hpp"
#include "runtime/launch/stop_signal.hpp"
#include "runtime/observe/terminal.hpp"

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kOrphansLimit{2000};
constexpr std::chrono::milliseconds kDrainLimit{1000};
constexpr int kFlushLimitMs = 1000;
constexpr int kNotEnded = 5;  // nothing failed, but a process could not be ended

}  // namespace

void prepare_to_supervise(const std::string& output_dir) {
  ensure_standard_streams();
  std::error_code failed;
  std::filesystem::create_directories(output_dir, failed);
  if (const int error = failed.value()) {
    throw_io_error("create", output_dir, error, write_remedy(error, "output.dir"));
  }
}

Supervision::Supervision(const SupervisorOptions& options)
    : screen_(STDOUT_FILENO, STDERR_FILENO,
              terminal_info(STDOUT_FILENO).rewrites && terminal_info(STDERR_FILENO).rewrites),
      supervisor_(options, signals_, screen_) {}

void Supervision::start(RankPlan plan) {
  const std::string name =
      plan.name.empty() ? format_text("rank {} on {}", plan.rank, host_name()) : plan.name;
  try {
    supervisor_.start(std::move(plan));
  } catch (const IoError&) {
    throw;
  } catch (const Error& error) {
    throw Error("cannot start " + name + ": " + error.what());
  }
}

SuperviseResult Supervision::see_through() {
  SuperviseResult result = supervisor_.run();
  if (result.not_gone.empty()) (void)orphans_.end(kOrphansLimit);
  supervisor_.drain(kDrainLimit, result);
  screen_.close_line();
  screen_.out().flush_within(kFlushLimitMs);
  result.output_lost = screen_.out().lost();
  result.reader_gone = screen_.out().reader_gone();
  return result;
}

void Supervision::say(const std::string& text) {
  screen_.write_err(text);
  screen_.err().flush_within(kFlushLimitMs);
}

const RankEnd* failure_of(const SuperviseResult& result) {
  const RankEnd* failure = first_failure(result.ends);
  if (failure == nullptr || !result.interrupted) return failure;
  const auto stopped_at_once = [](const RankEnd& end) {
    return classify(end) == EndClass::kStopped && !end.killed && !stopped_in_order(end);
  };
  const bool caused = classify(*failure) == EndClass::kSecondary &&
                      std::any_of(result.ends.begin(), result.ends.end(), stopped_at_once);
  return caused ? nullptr : failure;
}

LaunchResult launch_result(const SuperviseResult& result, const RankEnd* failure) {
  // Ranks that had done all their work before they saw the stop have finished.
  const bool all_done =
      !result.ends.empty() && std::ranges::all_of(result.ends, [](const auto& end) {
        return classify(end) == EndClass::kDone;
      });
  if (all_done && result.not_gone.empty()) return {.exit_code = 0};
  const std::string cause = failure == nullptr ? "" : failure_text(*failure);
  if (result.interrupted) {
    // A rank with a reported failure did not stop in order: for example, its last save failed.
    const bool told =
        failure != nullptr && failure->report && classify(*failure) == EndClass::kPrimary;
    return {.exit_code = told ? exit_code_of(*failure) : kInterruptedExitCode, .cause = cause};
  }
  if (failure == nullptr && first_stop(result.ends) != nullptr) {
    return {.exit_code = kInterruptedExitCode};
  }
  if (failure == nullptr) return {.exit_code = result.not_gone.empty() ? 0 : kNotEnded};
  return {.exit_code = exit_code_of(*failure),
          .worth_restarting = result.not_gone.empty() && worth_restarting(*failure),
          .cause = cause};
}

}  // namespace sluice
