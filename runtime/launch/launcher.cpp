#include "runtime/launch/launcher.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>

#include "kernels/base/error.hpp"
#include "runtime/launch/binding.hpp"
#include "runtime/launch/descendants.hpp"
#include "runtime/launch/rank_env.hpp"
#include "runtime/launch/stop_signal.hpp"
#include "runtime/launch/supervisor.hpp"

namespace sluice {
namespace {

using Environment = std::map<std::string, std::string>;

Environment own_environment() {
  Environment result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) result[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return result;
}

void describe_terminal(Environment& environment) {
  environment.erase("SLUICE_TTY");
  if (::isatty(STDOUT_FILENO) != 1) return;
  environment["SLUICE_TTY"] = std::string(1, '1');
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    environment["COLUMNS"] = std::to_string(size.ws_col);
  }
}

int world_size_of(const LaunchRequest& request) {
  return request.world_size > 0 ? request.world_size : request.nproc;
}

Environment common_environment(const LaunchRequest& request, int port) {
  Environment environment = own_environment();
  describe_terminal(environment);
  environment["WORLD_SIZE"] = std::to_string(world_size_of(request));
  environment["LOCAL_WORLD_SIZE"] = std::to_string(request.nproc);
  environment["MASTER_ADDR"] = request.master_addr;
  environment["MASTER_PORT"] = std::to_string(port);
  if (request.threads > 0) {
    environment["OMP_NUM_THREADS"] = std::to_string(request.threads);
  } else if (!environment.contains("OMP_NUM_THREADS")) {
    environment["OMP_NUM_THREADS"] = std::to_string(threads_per_rank(request.nproc));
  }
  for (const auto& [name, value] : request.environment) environment[name] = value;
  return environment;
}

RankPlan plan_rank(const LaunchRequest& request, const Environment& common, int local_rank) {
  const int rank = request.first_rank + local_rank;
  const auto base =
      std::filesystem::path(request.output_dir) / std::string("rank-").append(std::to_string(rank));
  RankPlan plan;
  plan.rank = rank;
  plan.log_path = base.string() + ".log";
  // Absolute: a rank may change its directory.
  plan.error_path = std::filesystem::absolute(base).string() + ".error.json";
  plan.on_terminal = rank == 0;
  Environment environment = common;
  environment["RANK"] = std::to_string(rank);
  environment["LOCAL_RANK"] = std::to_string(local_rank);
  environment["SLUICE_ERROR_FILE"] = plan.error_path;
  plan.command.executable = request.executable;
  plan.command.argv = request.argv;
  for (const auto& [name, value] : environment) {
    plan.command.environment.push_back(name + "=" + value);
  }
  plan.command.separate_stderr = plan.on_terminal;
  return plan;
}

void check_request(const LaunchRequest& request) {
  const int world = world_size_of(request);
  if (request.nproc < 1) {
    throw ConfigError("launch.nproc is " + std::to_string(request.nproc) +
                      "; at least one rank has to be started");
  }
  if (request.first_rank < 0 || request.first_rank + request.nproc > world) {
    throw ConfigError("ranks " + std::to_string(request.first_rank) + " to " +
                      std::to_string(request.first_rank + request.nproc - 1) +
                      " of this host do not fit a world of " + std::to_string(world));
  }
}

void create_output_dir(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) throw_io_error("create", dir, error.value());
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

void start_all(Supervisor& supervisor, const LaunchRequest& request, const Environment& common) {
  for (int local_rank = 0; local_rank < request.nproc; ++local_rank) {
    RankPlan plan = plan_rank(request, common, local_rank);
    const std::string name = ranks_text({plan.rank}) + " on " + host_name();
    try {
      supervisor.start(std::move(plan));
    } catch (const IoError&) {
      throw;
    } catch (const Error& error) {
      throw Error("cannot start " + name + ": " + error.what());
    }
  }
}

// The last lines; the failure's own come last of all.
std::string last_words(const SuperviseResult& result, const RankEnd* failure) {
  std::string text;
  if (!result.not_gone.empty()) {
    text += ranks_text(result.not_gone) +
            " could not be ended: the system holds it (a device or a "
            "network file system that does not answer)\n";
  }
  if (failure == nullptr) {
    if (!result.killed.empty())
      text += "killed before the end: " + ranks_text(result.killed) + "\n";
    return text;
  }
  if (classify(*failure) == EndClass::kSecondary) {
    text += "no rank reported a cause of its own";
    if (!result.killed.empty()) {
      text.append("; ").append(ranks_text(result.killed));
      text +=
          " did not answer and had to be killed, so look there "
          "first";
    }
    text += "\n";
  }
  return text + describe_failure(*failure);
}

LaunchResult result_of(const SuperviseResult& result, const RankEnd* failure) {
  if (result.interrupted) return {kInterruptedExitCode, false};
  if (failure == nullptr) return {result.not_gone.empty() ? 0 : 5, false};
  return {exit_code_of(*failure), result.not_gone.empty() && worth_restarting(*failure)};
}

}  // namespace

LaunchResult run_launcher(const LaunchRequest& request) {
  check_request(request);
  ensure_standard_streams();
  create_output_dir(request.output_dir);
  const PortReservation port(request.master_port);
  const Environment common = common_environment(request, port.port());

  StopSignalFd signals;
  TerminalSink out(STDOUT_FILENO);
  TerminalSink err(STDERR_FILENO);
  OrphanKeeper orphans;
  Supervisor supervisor({.kill_grace = request.kill_grace, .stop_grace = request.stop_grace},
                        signals, out, err);
  start_all(supervisor, request, common);
  SuperviseResult result = supervisor.run();

  constexpr std::chrono::milliseconds kOrphansLimit{2000};
  constexpr std::chrono::milliseconds kDrainLimit{1000};
  constexpr int kFlushLimitMs = 1000;
  if (result.not_gone.empty()) (void)orphans.end(kOrphansLimit);
  supervisor.drain(kDrainLimit, result);
  out.flush_within(kFlushLimitMs);
  const RankEnd* failure = first_failure(result.ends);
  err.write(last_words(result, failure));
  err.flush_within(kFlushLimitMs);
  return result_of(result, failure);
}

}  // namespace sluice
