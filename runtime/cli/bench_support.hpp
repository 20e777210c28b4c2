// What commands that measure have in common.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace sluice {

// A folder of this process's, gone at the end; kept where what is in it explains a failure. Throws
// IoError.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  void keep() { kept_ = true; }

 private:
  std::string path_;
  bool kept_ = false;
};

// While it lives, what goes to standard output goes to standard error: standard output is for the
// result. Throws IoError.
class OutputToError {
 public:
  OutputToError();
  ~OutputToError();
  OutputToError(const OutputToError&) = delete;
  OutputToError& operator=(const OutputToError&) = delete;

 private:
  int saved_ = -1;
};

// Throws ConfigError in a process that a launcher made a rank.
void refuse_inside_a_job(const std::string& command);

// Where rank 0 of `bench comm` writes what is printed in the end: a file, from the environment.
inline constexpr char kBenchResultVariable[] = "SLUICE_BENCH_RESULT";

struct CommRun {
  int exit_code = 0;
  std::string result;  // of rank 0; empty unless exit_code is 0
};
// Ranks of this program with the arguments of a `bench comm`. Call it from the main thread, before
// others exist.
[[nodiscard]] CommRun launch_bench_comm(int processes, const std::vector<std::string>& argv);

}  // namespace sluice
