#include "tests/cli/program.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "base/posix/lock_file.hpp"
#include "tests/free_port.hpp"

namespace sluice::testing {
namespace fs = std::filesystem;

std::vector<std::string> Finished::lines() const {
  std::vector<std::string> all;
  std::istringstream stream(output);
  for (std::string line; std::getline(stream, line);) all.push_back(line);
  return all;
}

Scratch::Scratch() {
  std::string pattern = (fs::temp_directory_path() / "sluice-cli-XXXXXX").string();
  folder_ = ::mkdtemp(pattern.data());
}

Scratch::~Scratch() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::string Scratch::path(const std::string& name) const { return (folder_ / name).string(); }

void Scratch::write(const std::string& name, const std::string& text) const {
  std::ofstream(folder_ / name, std::ios::binary) << text;
}

std::string Scratch::read(const std::string& name) const {
  std::ifstream file(folder_ / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<nlohmann::json> Scratch::metrics(const std::string& run) const {
  std::vector<nlohmann::json> all;
  std::ifstream file(folder_ / run / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) all.push_back(nlohmann::json::parse(line));
  return all;
}

std::string Scratch::curve(const std::string& run, int after) const {
  std::string text;
  for (const nlohmann::json& step : metrics(run)) {
    if (step["step"] <= after) continue;
    for (const char* key : {"step", "loss", "grad_norm", "lr", "loss_scale"}) {
      text += step[key].dump() + " ";
    }
    if (step.contains("eval_loss")) text += step["eval_loss"].dump();
    text += "\n";
  }
  return text;
}

Finished run_program(const Scratch& scratch, const std::string& arguments,
                     const std::map<std::string, std::string>& environment, int limit_s) {
  std::string command = "cd '" + scratch.path() + "' && ";
  for (const auto& [name, value] : environment) command += name + "='" + value + "' ";
  command +=
      "timeout " + std::to_string(limit_s) + " " + SLUICE_BINARY_DIR + "/runtime/cli/sluice ";
  std::string filled = arguments;
  for (std::size_t at = 0; (at = filled.find("{}", at)) != std::string::npos;) {
    filled.replace(at, 2, scratch.path());
  }
  command += filled + " 2>&1";
  Finished result;
  const auto begin = std::chrono::steady_clock::now();
  FILE* pipe = ::popen(command.c_str(), "r");
  char buffer[4096];
  std::size_t got = 0;
  while ((got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0) result.output.append(buffer, got);
  const int status = ::pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

void write_tiny(const Scratch& scratch) {
  std::string text;
  for (int i = 0; i < 2000; ++i) {
    text += "line " + std::to_string(i) + " of a text that repeats itself a little; ";
  }
  scratch.write("text.txt", text);
  scratch.write("tiny.yaml",
                "model: {type: gpt2, layers: 2, hidden: 64, heads: 4, seq: 64}\n"
                "data: {text: [text.txt]}\n"
                "train: {steps: 30, micro_batch: 2, eval_steps: 2, log_every: 10}\n"
                "optimizer: {lr: 3e-3}\n"
                "zero: {stage: 3}\n"
                "launch: {nproc: 2, timeout: 20s}\n"
                "output: {dir: run}\n");
}

void signal_launcher(const Scratch& scratch, const std::string& run, int signal) {
  const std::string pid = read_lock_holder(scratch.path(run + "/sluice-run.lock")).pid;
  if (pid == "?" || ::kill(std::stoi(pid), signal) != 0) {
    ADD_FAILURE() << "no launcher holds " << run << ": pid " << pid;
  }
}

std::map<std::string, std::string> environment_of_rank_0(int world_size) {
  return {{"RANK", "0"},
          {"WORLD_SIZE", std::to_string(world_size)},
          {"LOCAL_RANK", "0"},
          {"LOCAL_WORLD_SIZE", std::to_string(world_size)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(free_port())}};
}

int processes_with(const std::string& text) {
  int count = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    const std::string line{std::istreambuf_iterator<char>(file), {}};
    if (line.find(text) != std::string::npos) ++count;
  }
  return count;
}

}  // namespace sluice::testing
