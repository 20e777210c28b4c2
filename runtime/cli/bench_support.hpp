// Shared by the commands that measure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/posix/descriptor.hpp"

namespace sluice {

// A folder of this process, removed by the destructor; kept if its content explains a failure.
// Throws IoError.
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

// Redirects standard output to standard error for its lifetime, since standard output is for the
// result. Throws IoError.
class OutputToError {
 public:
  OutputToError();
  ~OutputToError();
  OutputToError(const OutputToError&) = delete;
  OutputToError& operator=(const OutputToError&) = delete;

 private:
  Descriptor saved_;
};

// Throws ConfigError in a process that a launcher started as a rank.
void refuse_inside_a_job(const std::string& command);

// The file, from the environment, to which rank 0 of `bench comm` writes the result.
inline constexpr char kBenchResultVariable[] = "SLUICE_BENCH_RESULT";

struct CommRun {
  int exit_code = 0;
  std::string result;  // of rank 0; empty unless exit_code is 0
};
// Starts ranks of this program with the arguments of a `bench comm`. Call it from the main thread,
// before other threads exist.
[[nodiscard]] CommRun launch_bench_comm(int processes, const std::vector<std::string>& argv);

}  // namespace sluice
