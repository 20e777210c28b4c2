#include "runtime/cli/bench_support.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.hpp"
#include "runtime/launch/launcher.hpp"
#include "runtime/launch/rank_env.hpp"
#include "runtime/launch/stop_signal.hpp"

namespace sluice {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw IoError("rank 0 ended without a result in " + path, path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

ScratchFolder::ScratchFolder() {
  path_ = (std::filesystem::temp_directory_path() / "sluice-bench-XXXXXX").string();
  if (::mkdtemp(path_.data()) == nullptr) {
    throw IoError("cannot create " + path_ + "; point TMPDIR to a folder that can be written",
                  path_, errno);
  }
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!kept_) std::filesystem::remove_all(path_, ignored);
}

OutputToError::OutputToError() {
  std::fflush(stdout);
  saved_.reset(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  if (!saved_ || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    throw IoError("cannot redirect standard output to standard error; open both", "standard output",
                  errno);
  }
}

OutputToError::~OutputToError() {
  std::fflush(stdout);
  ::dup2(saved_.get(), STDOUT_FILENO);
}

void refuse_inside_a_job(const std::string& command) {
  if (rank_environment()) {
    throw ConfigError(command +
                      " starts its own ranks; run it without RANK, WORLD_SIZE, LOCAL_RANK and "
                      "LOCAL_WORLD_SIZE in the environment");
  }
}

CommRun launch_bench_comm(int processes, const std::vector<std::string>& argv) {
  ScratchFolder folder;
  const std::string result = std::filesystem::absolute(folder.path()).string() + "/result";
  LaunchRequest request;
  request.nproc = processes;
  request.argv = argv;
  request.output_dir = folder.path();
  request.environment = {{kBenchResultVariable, result}};
  CommRun run;
  {
    const OutputToError progress;
    run.exit_code = run_launcher(request).exit_code;
  }
  if (run.exit_code == 0) {
    run.result = read_text(result);
  } else if (run.exit_code != kInterruptedExitCode) {
    folder.keep();
  }
  return run;
}

}  // namespace sluice
