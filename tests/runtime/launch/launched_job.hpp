// A launcher under test: fake_rank as a process with output to files, a deadline, and a census of
// the processes that belong to it. gtest; Linux.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/launch/pidfd.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice {

struct JobOptions {
  int kill_grace_ms = 300;
  int stop_grace_ms = 5000;
  std::string executable = "-";
  int stdout_fd = -1;                         // -1: a file
  std::vector<std::string> environment = {};  // NAME=value
  std::string hosts = {};  // a hostfile's text: agents on these, by a stand-in for ssh
  std::string ssh = {};    // instead of that one
};

// False if the condition does not become true within 20 s.
inline bool eventually(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

// The thread sanitizer delays signals until the next intercepted call: one in eighty never reached
// the rank's handler (without the sanitizer none of 150).
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kSignalsArrive = false;
#else
inline constexpr bool kSignalsArrive = true;
#endif

class LaunchedJob {
 public:
  explicit LaunchedJob(const std::vector<std::string>& behaviours, const JobOptions& options = {}) {
    std::vector<std::string> words{SLUICE_FAKE_RANK,
                                   "launch",
                                   (folder_.path() / "run").string(),
                                   std::to_string(options.kill_grace_ms),
                                   std::to_string(options.stop_grace_ms),
                                   options.executable};
    if (!options.hosts.empty()) write_hosts(options);
    words.insert(words.end(), behaviours.begin(), behaviours.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) become(argv, options);
    pidfd_ = open_pidfd(pid_);
  }
  ~LaunchedJob() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  LaunchedJob(const LaunchedJob&) = delete;
  LaunchedJob& operator=(const LaunchedJob&) = delete;

  // The exit code; 1000 + signal after a signal; -1 after the deadline.
  int wait(std::chrono::milliseconds limit = std::chrono::seconds(10)) {
    pollfd ended{pidfd_.get(), POLLIN, 0};
    if (::poll(&ended, 1, static_cast<int>(limit.count())) != 1) return -1;
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  void wait_ready(int rank) const {
    EXPECT_TRUE(
        eventually([&] { return std::filesystem::exists(file("ready-" + std::to_string(rank))); }));
  }
  void send(int signal) const { ::kill(pid_, signal); }

  [[nodiscard]] std::filesystem::path file(const std::string& name) const {
    return folder_.path() / "run" / name;
  }
  [[nodiscard]] std::string out() const { return text_of(folder_.path() / "out"); }
  [[nodiscard]] std::string err() const { return text_of(folder_.path() / "err"); }
  [[nodiscard]] std::string log(int rank) const { return log("rank-" + std::to_string(rank)); }
  [[nodiscard]] std::string log(const std::string& name) const {
    return text_of(file(name + ".log"));
  }

  // Living processes that inherited this job's environment.
  [[nodiscard]] int processes_left() const {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      if (text_of(entry.path() / "environ").find(tag()) != std::string::npos) ++count;
    }
    return count;
  }

 private:
  // As with ssh, the remote command is in no process group of the launcher and outlives the
  // connection, whose exit code is 255 if it breaks.
  void write_hosts(const JobOptions& options) const {
    std::ofstream(folder_.path() / "hosts") << options.hosts;
    std::ofstream(folder_.path() / "ssh")
        << "[ \"$1\" = \"$SLUICE_TEST_UNREACHABLE\" ] && echo no route to $1 >&2 && exit 255\n"
           "echo \"$2\" >> \"$SLUICE_TEST_OUT/commands\"\n"
           "setsid sh -c \"$2\"\ncode=$?\n[ $code -gt 130 ] && exit 255\nexit $code\n";
  }

  [[nodiscard]] std::string tag() const { return "SLUICE_TEST_TAG=" + folder_.path().string(); }

  [[noreturn]] void become(const std::vector<char*>& argv, const JobOptions& options) const {
    const auto redirect = [this](int fd, const char* name) {
      ::dup2(::open((folder_.path() / name).c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), fd);
    };
    if (options.stdout_fd >= 0) {
      ::dup2(options.stdout_fd, 1);
    } else {
      redirect(1, "out");
    }
    redirect(2, "err");
    ::setenv("SLUICE_TEST_TAG", folder_.path().c_str(), 1);
    if (!options.hosts.empty()) {
      const std::string ssh = "sh " + (folder_.path() / "ssh").string();
      ::setenv("SLUICE_TEST_HOSTFILE", (folder_.path() / "hosts").c_str(), 1);
      ::setenv("SLUICE_TEST_OUT", (folder_.path() / "run").c_str(), 1);
      ::setenv("SLUICE_SSH", options.ssh.empty() ? ssh.c_str() : options.ssh.c_str(), 1);
    }
    for (const std::string& entry : options.environment) {
      const std::size_t equals = entry.find('=');
      ::setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
    }
    ::execv(argv[0], argv.data());
    ::_exit(99);
  }

  TemporaryFolder folder_;
  pid_t pid_ = -1;
  Descriptor pidfd_;
};

}  // namespace sluice
