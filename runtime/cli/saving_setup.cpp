#include "runtime/cli/saving_setup.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "runtime/checkpoint/file_system.hpp"
#include "runtime/engine/checkpointing.hpp"
#include "runtime/engine/resume.hpp"

namespace sluice {
namespace {

// Of the launcher, in nanoseconds of the steady clock, which all processes of a host share.
constexpr const char* kStarted = "SLUICE_STARTED_NS";

using Clock = std::chrono::steady_clock;

Clock::time_point started() {
  const char* given = std::getenv(kStarted);
  if (given == nullptr) return Clock::now();
  const std::string_view text = given;
  std::int64_t ns = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ns);
  const Clock::time_point then{std::chrono::nanoseconds(ns)};
  return error == std::errc() && then < Clock::now() ? then : Clock::now();
}

}  // namespace

SavingOptions saving_options(const LoadedConfig& config, const std::string& resume) {
  const CheckpointOptions& asked = config.run.checkpoint;
  SavingOptions saving;
  saving.checkpoint = asked;
  if (asked.dir.empty()) saving.checkpoint.dir = config.run.output.dir + "/checkpoints";
  saving.on = !asked.dir.empty() || asked.every != SaveInterval{} || asked.time_limit_seconds > 0 ||
              resume != "never";
  saving.resume = resume;
  saving.config = config.resolved_yaml();
  saving.started = started();
  return saving;
}

void check_saving(const LoadedConfig& config, const std::string& resume, const MemoryPlan& memory) {
  const SavingOptions saving = saving_options(config, resume);
  if (!saving.on) return;
  check_resume(local_file_system(), {.from = resume, .dir = saving.checkpoint.dir});
  check_saving_room(room_for_saving(memory));
}

void prepare_saving(const LoadedConfig& config, const std::string& resume, LaunchRequest& request) {
  if (!saving_options(config, resume).on) return;
  const auto timeout = std::chrono::milliseconds(
      static_cast<std::int64_t>(config.run.launch.timeout_seconds * 1000));
  request.stop_grace = std::max(request.stop_grace, timeout);
  // An agent's launcher on this host has said already when the run began.
  const auto begun =
      std::chrono::duration_cast<std::chrono::nanoseconds>(started().time_since_epoch());
  request.environment.emplace_back(kStarted, std::to_string(begun.count()));
}

}  // namespace sluice
