#include "runtime/launch/launcher.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/host_faults.hpp"
#include "base/job_secret.hpp"
#include "base/plain_lines.hpp"
#include "base/posix/host_name.hpp"
#include "runtime/launch/binding.hpp"
#include "runtime/launch/process_environment.hpp"
#include "runtime/launch/rank_env.hpp"
#include "runtime/launch/stop_signal.hpp"
#include "runtime/launch/supervision.hpp"

namespace sluice {
namespace {

// An agent's launcher sends the secret as it starts the connection.
constexpr std::chrono::milliseconds kSecretPatience{60000};

// The ranks of this host among all.
AgentPlace ranks_here(const LaunchRequest& request) {
  return request.agent.value_or(AgentPlace{.nproc = request.nproc, .world = request.nproc});
}

// Given by the user or, of an agent, by its launcher; else a new one.
std::string secret_of(const LaunchRequest& request) {
  if (request.agent) return read_secret_word(STDIN_FILENO, kSecretPatience);
  std::string secret = job_secret();
  return secret.empty() ? make_job_secret() : secret;
}

Environment common_environment(const LaunchRequest& request, const AgentPlace& here, int port) {
  Environment environment = own_environment();
  environment.erase(std::string(kAgentVariable));
  // An agent's launcher has described its own.
  if (!request.agent) describe_terminal(environment);
  environment["WORLD_SIZE"] = std::to_string(here.world);
  environment["LOCAL_WORLD_SIZE"] = std::to_string(here.nproc);
  environment["MASTER_ADDR"] = request.master_addr;
  environment["MASTER_PORT"] = std::to_string(port);
  environment[kJobSecretVariable] = secret_of(request);
  if (request.threads > 0) {
    environment["OMP_NUM_THREADS"] = std::to_string(request.threads);
  } else if (!environment.contains("OMP_NUM_THREADS")) {
    environment["OMP_NUM_THREADS"] = std::to_string(threads_per_rank(here.nproc));
  }
  for (const auto& [name, value] : request.environment) environment[name] = value;
  return environment;
}

RankPlan plan_rank(const LaunchRequest& request, const Environment& common, int local_rank) {
  const int rank = ranks_here(request).first_rank + local_rank;
  const auto base =
      std::filesystem::path(request.output_dir) / std::string("rank-").append(std::to_string(rank));
  RankPlan plan;
  plan.rank = rank;
  plan.log_path = base.string() + ".log";
  // Absolute: a rank may change its directory.
  plan.error_path = std::filesystem::absolute(base).string() + ".error.json";
  plan.on_terminal = rank == 0;
  if (plan.on_terminal) plan.printed_lines = plain_lines();
  Environment environment = common;
  environment["RANK"] = std::to_string(rank);
  environment["LOCAL_RANK"] = std::to_string(local_rank);
  environment["SLUICE_ERROR_FILE"] = plan.error_path;
  plan.command.executable = request.executable;
  plan.command.argv = request.argv;
  plan.command.environment = entries_of(environment);
  plan.command.separate_stderr = plan.on_terminal;
  // The first host's files are in its own folder, where the user looks first.
  if (request.agent && request.agent->node > 0) {
    plan.relayed = format_text("[rank {} on {}] ", rank, host_name());
  }
  return plan;
}

void check_request(const LaunchRequest& request) {
  if (ranks_here(request).nproc < 1) {
    throw ConfigError(
        format_text("launch.nproc is {}; at least one rank has to be started", request.nproc));
  }
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
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

// An agent's report of the failure to its launcher, which cannot read the rank's log.
ErrorReport report_of(const RankEnd& failure, const LaunchResult& outcome) {
  if (failure.report) return *failure.report;
  ErrorReport report{.rank = failure.rank,
                     .host = failure.host,
                     .time_ns = failure.time_ns,
                     .exit_code = exit_code_of(failure),
                     .secondary = classify(failure) == EndClass::kSecondary,
                     .recurs = !outcome.worth_restarting && !worth_restarting(failure),
                     .message = headline(failure)};
  for (const std::string& line : failure.last_lines) report.message += "\n| " + line;
  return report;
}

}  // namespace

LaunchResult run_launcher(const LaunchRequest& request) {
  check_request(request);
  prepare_to_supervise(request.output_dir);
  const AgentPlace here = ranks_here(request);
  if (!request.agent && here.nproc > 1) check_loopback_is_up();
  std::optional<PortReservation> port;  // where rank 0 will serve it
  if (here.first_rank == 0) port.emplace(request.master_port);
  const Environment common =
      common_environment(request, here, port ? port->port() : request.master_port);
  Supervision supervision({.kill_grace = request.kill_grace,
                           .stop_grace = request.stop_grace,
                           .words_fd = request.agent ? STDIN_FILENO : -1,
                           .ends_with_reader = request.ends_with_reader});
  for (int local_rank = 0; local_rank < here.nproc; ++local_rank) {
    supervision.start(plan_rank(request, common, local_rank));
  }
  const SuperviseResult result = supervision.see_through();
  const RankEnd* failure = failure_of(result);
  LaunchResult outcome = launch_result(result, failure);
  outcome.output_lost = result.output_lost;
  outcome.reader_gone = result.reader_gone;
  if (failure != nullptr) supervision.say(describe_other_crashes(result.ends, *failure));
  if (request.agent) {
    supervision.say(last_words(result, nullptr));
    const RankEnd* told = failure != nullptr ? failure : first_stop(result.ends);
    if (told != nullptr) supervision.say(agent_record(report_of(*told, outcome)));
  } else {
    supervision.say(last_words(result, failure));
  }
  return outcome;
}

}  // namespace sluice
