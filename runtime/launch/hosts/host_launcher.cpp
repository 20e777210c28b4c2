#include "runtime/launch/hosts/host_launcher.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <optional>
#include <sstream>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/index.hpp"
#include "base/job_secret.hpp"
#include "base/plain_lines.hpp"
#include "base/posix/host_name.hpp"
#include "base/posix/io_error.hpp"
#include "runtime/launch/process_environment.hpp"
#include "runtime/launch/rank_env.hpp"
#include "runtime/launch/stop_signal.hpp"
#include "runtime/launch/supervision.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// Time for an agent to end its ranks after their grace: SIGKILL, orphans, pipes, terminal.
constexpr std::chrono::milliseconds kAgentEndLimit{7000};

// ssh must not ask for a password; a lost host is detected within 30 s.
constexpr const char* kDefaultSsh =
    "ssh -T -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=5"
    " -o ServerAliveCountMax=6";

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, separator);) {
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  for (const std::string& folder : split(path == nullptr ? "/usr/bin:/bin" : path, ':')) {
    const std::string candidate = folder + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  throw ConfigError("launch.hostfile needs the program " + name +
                    ", which is not in PATH; install it, or name another in SLUICE_SSH");
}

std::vector<std::string> ssh_words() {
  const char* given = std::getenv("SLUICE_SSH");
  std::vector<std::string> words = split(given == nullptr ? kDefaultSsh : given, ' ');
  if (words.empty()) throw ConfigError("SLUICE_SSH is empty; give a command like 'ssh -p 2222'");
  return words;
}

bool begins_with_any(const std::string& name, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// The user's wishes for the ranks, and nothing that only this machine or this process is.
Environment for_all_hosts(const Environment& own) {
  Environment chosen;
  std::vector<std::string> wished{"OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT",
                                  "LD_LIBRARY_PATH"};
  if (const auto more = own.find("SLUICE_EXPORT"); more != own.end()) {
    for (std::string& name : split(more->second, ',')) wished.push_back(std::move(name));
  }
  for (const auto& [name, value] : own) {
    const bool named = std::find(wished.begin(), wished.end(), name) != wished.end();
    if (!named && !begins_with_any(name, {"SLUICE_", "NCCL_", "GLOO_", "TORCH_", "MKL_"})) continue;
    if (name == "SLUICE_SSH" || name == "SLUICE_ERROR_FILE") continue;
    if (name == "SLUICE_TTY" || name == "SLUICE_STDERR_TTY") continue;
    if (name == kJobSecretVariable) continue;  // arguments are for everybody to read
    chosen[name] = value;
  }
  return chosen;
}

std::string master_of(const std::vector<HostSlots>& hosts) {
  if (const char* given = std::getenv("MASTER_ADDR"); given != nullptr && *given != '\0') {
    return given;
  }
  // Loopback is every host itself.
  const std::string& first = hosts.front().host;
  const bool loopback = first == "localhost" || first == "127.0.0.1" || first == "::1";
  const std::string name = loopback && hosts.size() > 1 ? host_name() : first;
  return name.substr(name.find('@') + 1);  // user@host is for ssh
}

std::string name_of(const HostSlots& host, int first_rank) {
  const int last = first_rank + host.slots - 1;
  return "host " + host.host +
         (host.slots == 1 ? format_text(" (rank {})", last)
                          : format_text(" (ranks {} to {})", first_rank, last));
}

// Variables that every agent gets.
struct Job {
  std::string executable;
  std::string folder;
  Environment own;
  Environment shared;
  std::string master_addr;
  int master_port = 0;
  std::string secret;
};

Job make_job(const HostsRequest& request, int port) {
  Job job;
  std::error_code failed;
  job.executable = request.executable;
  if (job.executable.empty()) job.executable = fs::read_symlink("/proc/self/exe", failed).string();
  job.folder = fs::current_path(failed).string();
  if (failed) throw_io_error("find", "the program or its folder", failed.value());
  job.own = own_environment();
  job.shared = for_all_hosts(job.own);
  job.master_addr = master_of(request.hosts);
  job.master_port = port;
  job.secret = job_secret();
  if (job.secret.empty()) job.secret = make_job_secret();
  return job;
}

Environment agent_environment(const Job& job, const AgentPlace& place) {
  Environment environment{{std::string(kAgentVariable), agent_text(place)},
                          {"NODE_RANK", std::to_string(place.node)},
                          {"MASTER_ADDR", job.master_addr},
                          {"MASTER_PORT", std::to_string(job.master_port)}};
  // Rank 0 formats its progress line for the launcher's terminal.
  if (place.node == 0) describe_terminal(environment);
  return environment;
}

ChildCommand command_for(const HostsRequest& request, const Job& job, const HostSlots& host,
                         const AgentPlace& place) {
  ChildCommand command;
  command.keep_stdin = true;
  Environment told = agent_environment(job, place);
  if (is_this_host(host.host)) {
    command.executable = job.executable;
    command.argv = request.argv;
    Environment environment = job.own;
    environment.erase("SLUICE_TTY");
    environment.erase("SLUICE_STDERR_TTY");
    for (const auto& [name, value] : request.environment) environment[name] = value;
    for (const auto& [name, value] : told) environment[name] = value;
    command.environment = entries_of(environment);
    return command;
  }
  for (const auto& [name, value] : job.shared) told.emplace(name, value);
  command.argv = ssh_words();
  command.executable = find_program(command.argv.front());
  command.argv.push_back(host.host);
  command.argv.push_back(remote_command(job.folder, {told.begin(), told.end()}, job.executable,
                                        {request.argv.begin() + 1, request.argv.end()}));
  command.environment = entries_of(job.own);
  return command;
}

void start_agents(Supervision& supervision, const HostsRequest& request, const Job& job) {
  int first_rank = 0;
  const int world = world_of(request.hosts);
  for (std::size_t node = 0; node < request.hosts.size(); ++node) {
    const HostSlots& host = request.hosts[node];
    const AgentPlace place{.node = static_cast<int>(node),
                           .nodes = static_cast<int>(request.hosts.size()),
                           .first_rank = first_rank,
                           .nproc = host.slots,
                           .world = world};
    RankPlan plan;
    plan.rank = place.node;
    plan.agent = true;
    plan.first_word = secret_word(job.secret);
    plan.name = name_of(host, first_rank);
    plan.log_path = format_text("{}/host-{}.log", request.output_dir, node);
    plan.on_terminal = node == 0;
    if (plan.on_terminal) plan.printed_lines = plain_lines();
    plan.command = command_for(request, job, host, place);
    plan.command.separate_stderr = plan.on_terminal;
    first_rank += host.slots;
    supervision.start(std::move(plan));
  }
}

std::string hosts_text(const HostsRequest& request, const std::vector<int>& nodes) {
  std::string text;
  for (const int node : nodes) {
    text += (text.empty() ? "" : ", ") + nth(request.hosts, node).host;
  }
  return text;
}

// The shell of the host did not find the folder or the program, or could not execute the program.
bool is_missing_there(const RankEnd* failure) {
  return failure != nullptr && !failure->report && !failure->by_signal &&
         (failure->status == kNotThere || failure->status == kNotExecutable);
}

std::string same_paths(const Job& job) {
  return "every host needs at the same path the program " + job.executable +
         " with its libraries, and the working folder " + job.folder;
}

// The code of an agent without a report is the shell's or the connection's (ssh: 255), unless the
// agent's program has this code itself.
int exit_code_of_host(int code) {
  constexpr int kConfiguration = 2;
  constexpr int kTrainingFailed = 5;
  const bool own = code >= kConfiguration && code <= kTrainingFailed;
  return code == 0 || code == kInterruptedExitCode || own ? code : kTrainingFailed;
}

// The last lines; the failure's own come last of all.
std::string last_words(const HostsRequest& request, const Job& job, const SuperviseResult& result,
                       const RankEnd* failure) {
  std::string text;
  if (!result.not_gone.empty()) {
    text += "the connection to " + hosts_text(request, result.not_gone) + " could not be ended\n";
  }
  if (!result.killed.empty()) {
    text +=
        "did not end in time, and the connection was cut: " + hosts_text(request, result.killed) +
        "\n";
  }
  if (failure == nullptr) return text;
  if (classify(*failure) == EndClass::kSecondary) text += "no rank reported a cause of its own\n";
  text += describe_failure(*failure);
  return is_missing_there(failure) ? text + "  " + same_paths(job) + "\n" : text;
}

}  // namespace

int world_of(const std::vector<HostSlots>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0,
                         [](int sum, const HostSlots& host) { return sum + host.slots; });
}

LaunchResult run_hosts(const HostsRequest& request) {
  check(!request.hosts.empty() && !request.argv.empty(), "run_hosts needs hosts and arguments");
  prepare_to_supervise(request.output_dir);
  // Reserved if rank 0 is on this host; else a guess that rank 0's agent checks.
  const PortReservation port;
  const Job job = make_job(request, port.port());
  Supervision supervision({.kill_grace = request.kill_grace + kAgentEndLimit,
                           .stop_grace = request.stop_grace + kAgentEndLimit});
  start_agents(supervision, request, job);
  const SuperviseResult result = supervision.see_through();
  const RankEnd* failure = failure_of(result);
  supervision.say(last_words(request, job, result, failure));
  LaunchResult outcome = launch_result(result, failure);
  if (failure != nullptr && !failure->report) {
    outcome.exit_code = exit_code_of_host(outcome.exit_code);
  }
  if (is_missing_there(failure)) {
    outcome.worth_restarting = false;
    outcome.cause += "; " + same_paths(job);
  }
  return outcome;
}

}  // namespace sluice
