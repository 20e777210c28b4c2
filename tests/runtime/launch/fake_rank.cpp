// A program that launches itself, for the launcher's tests.
//
//   fake_rank launch OUTPUT_DIR KILL_GRACE_MS STOP_GRACE_MS EXECUTABLE|- BEHAVIOUR...
//
// starts a rank per BEHAVIOUR; rank N does the N-th. A behaviour is a list of steps "a,b:5,c"; see
// kSteps. After the last step the rank ends with 0.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "runtime/launch/error_report.hpp"
#include "runtime/launch/hosts/host_launcher.hpp"
#include "runtime/launch/launcher.hpp"
#include "runtime/launch/stop_signal.hpp"
#include "runtime/launch/watchdog.hpp"

namespace {

using std::chrono::milliseconds;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

void sleep_ms(long ms) { std::this_thread::sleep_for(milliseconds(ms)); }

void sleep_for_ever() {
  while (true) ::pause();
}

std::filesystem::path ready_file(const std::string& rank) {
  return std::filesystem::path(environment("SLUICE_ERROR_FILE")).parent_path() / ("ready-" + rank);
}

// Tells the test, and ranks that wait in `after`, that what comes before is done. Two system calls
// and no stream: the less there is in which the test's next signal may meet a sanitizer's runtime.
void mark_ready() {
  const std::string file = ready_file(environment("RANK"));
  ::close(::open(file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

void wait_until_ready(long rank) {
  while (!std::filesystem::exists(ready_file(std::to_string(rank)))) sleep_ms(2);
}

// A sanitizer's handlers would turn the signal into an exit code.
void die_of(int signal) {
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

// A child that stays. In a session of its own it is in no group the launcher knows.
void leave_grandchild(bool own_session) {
  if (::fork() == 0) {
    if (own_session) ::setsid();
    sleep_for_ever();
  }
}

void print_lines(long count) {
  for (long i = 0; i < count; ++i) {
    std::printf("out %ld of rank %s\n", i, environment("RANK").c_str());
    std::fflush(stdout);
    std::fprintf(stderr, "err %ld of rank %s\n", i, environment("RANK").c_str());
  }
}

void print_environment() {
  for (const char* name :
       {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
        "SLUICE_JOB_SECRET", "OMP_NUM_THREADS", "SLUICE_TTY", "COLUMNS"}) {
    std::printf("%s=%s\n", name, environment(name).c_str());
  }
  std::fflush(stdout);
}

void await_stop() {
  sluice::install_stop_handlers();
  mark_ready();
  while (!sluice::stop_requested()) sleep_ms(2);
}

void wait_for_stop() {
  await_stop();
  std::puts("stopped at a step boundary");
  std::exit(sluice::kInterruptedExitCode);
}

void hang_in(const char* phase, long timeout_ms) {
  sluice::Watchdog watchdog({.timeout = milliseconds(timeout_ms),
                             .waiting_timeout = milliseconds(timeout_ms),
                             .on_hang = {}});
  watchdog.set_phase(
      phase, std::string(phase) == "all-reduce" ? sluice::Waiting::kYes : sluice::Waiting::kNo);
  sleep_for_ever();
}

const std::map<std::string, std::function<void(long)>> kSteps{
    {"ok", [](long) {}},
    {"sleep", sleep_ms},
    {"exit", [](long code) { ::_exit(static_cast<int>(code)); }},
    {"raise", [](long signal) { die_of(static_cast<int>(signal)); }},
    {"abort", [](long) { die_of(SIGABRT); }},
    {"fail",
     [](long) { throw sluice::IoError("cannot read corpus.bin: Input/output error", "x"); }},
    {"secondary", [](long) { throw sluice::CommError("connection to rank 1 lost", true); }},
    {"lines", print_lines},
    {"partial", [](long) { ::write(1, "no line break", 13) > 0 ? void() : std::abort(); }},
    {"flood",
     [](long n) {
       for (long i = 0; i < n; ++i) std::puts(std::string(1023, 'x').c_str());
     }},
    {"environment", [](long) { print_environment(); }},
    {"ready", [](long) { mark_ready(); }},
    {"after", wait_until_ready},
    {"forever", [](long) { sleep_for_ever(); }},
    {"stubborn", [](long) { ::signal(SIGTERM, SIG_IGN); }},
    {"grandchild", [](long) { leave_grandchild(false); }},
    {"daemon", [](long) { leave_grandchild(true); }},
    {"await", [](long) { await_stop(); }},
    {"wait", [](long) { wait_for_stop(); }},
    {"stop",
     [](long) {
       sluice::report_stop("the time limit is near");
       std::exit(sluice::kInterruptedExitCode);
     }},
    {"kill_agent",
     [](long) {
       ::kill(::getppid(), SIGKILL);
       sleep_for_ever();
     }},
    {"hang", [](long ms) { hang_in("forward", ms); }},
    {"hang_in_collective", [](long ms) { hang_in("all-reduce", ms); }},
    {"nocore",
     [](long) {
       const rlimit none{};
       ::setrlimit(RLIMIT_CORE, &none);
     }},
};

void behave(const std::string& behaviour) {
  std::size_t begin = 0;
  while (begin < behaviour.size()) {
    const std::size_t end = std::min(behaviour.find(',', begin), behaviour.size());
    const std::string step = behaviour.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t colon = step.find(':');
    const long argument = colon == std::string::npos ? 0 : std::atol(step.c_str() + colon + 1);
    kSteps.at(step.substr(0, colon))(argument);
  }
}

int launch(const std::vector<std::string>& words) {
  sluice::LaunchRequest request;
  request.output_dir = words.at(2);
  request.kill_grace = milliseconds(std::atol(words.at(3).c_str()));
  request.stop_grace = milliseconds(std::atol(words.at(4).c_str()));
  if (words.at(5) != "-") request.executable = words.at(5);
  request.nproc = static_cast<int>(words.size()) - 6;
  request.argv = {words.at(0), "rank"};
  request.argv.insert(request.argv.end(), words.begin() + 6, words.end());
  try {
    const std::string hostfile = environment("SLUICE_TEST_HOSTFILE");
    if (hostfile.empty()) return sluice::run_launcher(request).exit_code;
    sluice::HostsRequest hosts;
    hosts.hosts = sluice::read_hostfile(hostfile, 1);
    hosts.argv = request.argv;
    if (words.at(5) != "-") hosts.executable = words.at(5);
    hosts.output_dir = request.output_dir;
    hosts.kill_grace = request.kill_grace;
    hosts.stop_grace = request.stop_grace;
    return sluice::run_hosts(hosts).exit_code;
  } catch (const sluice::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}

int be_agent(const std::vector<std::string>& words, const sluice::AgentPlace& place) {
  sluice::LaunchRequest request;
  request.output_dir = environment("SLUICE_TEST_OUT");
  request.kill_grace = milliseconds(300);
  request.agent = place;
  request.master_addr = environment("MASTER_ADDR");
  request.master_port = std::atoi(environment("MASTER_PORT").c_str());
  request.argv = words;
  return sluice::run_launcher(request).exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  if (words.size() > 1 && words[1] == "launch") return launch(words);
  if (const auto place = sluice::agent_place()) return be_agent(words, *place);
  try {
    behave(words.at(2 + static_cast<std::size_t>(std::atoi(environment("RANK").c_str()))));
  } catch (const std::exception& error) {
    return sluice::report_failure(error);
  }
  return 0;
}
