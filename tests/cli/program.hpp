// Runs the program as a user does, in a scratch folder of its own.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace sluice::testing {

struct Finished {
  int exit_code = -1;
  double seconds = 0;
  std::string output;  // standard output and error, as they came
  [[nodiscard]] std::vector<std::string> lines() const;
};

class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] std::string path(const std::string& name = "") const;
  void write(const std::string& name, const std::string& text) const;
  [[nodiscard]] std::string read(const std::string& name) const;
  // The objects of <run>/metrics.jsonl.
  [[nodiscard]] std::vector<nlohmann::json> metrics(const std::string& run) const;
  // The objects after step `after`, as text, so that equal means equal bits: step, loss, norm,
  // learning rate, scale and evaluation.
  [[nodiscard]] std::string curve(const std::string& run, int after = 0) const;

 private:
  std::filesystem::path folder_;
};

// `arguments` as for a shell; {} stands for the scratch folder, which is the working directory. The
// process is ended after `limit_s`.
[[nodiscard]] Finished run_program(const Scratch& scratch, const std::string& arguments,
                                   const std::map<std::string, std::string>& environment = {},
                                   int limit_s = 120);

// tiny.yaml and its text, in the scratch folder: 2 ranks, 2 layers, hidden 64, 30 steps, run/ as
// output.
void write_tiny(const Scratch& scratch);

// Sends a signal to the launcher of the run in folder `run`: the run's lock names the launcher. For
// a run that has begun.
void signal_launcher(const Scratch& scratch, const std::string& run, int signal);

// The variables of rank 0 of a job of `world_size` ranks on this host, with a port that is free.
[[nodiscard]] std::map<std::string, std::string> environment_of_rank_0(int world_size);

// Processes on this machine whose command line contains `text`.
[[nodiscard]] int processes_with(const std::string& text);

}  // namespace sluice::testing
