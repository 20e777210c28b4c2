#include "tests/runtime/engine/forked_run.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>
#include <utility>

#include "base/failpoint.hpp"
#include "kernels/cpu/cpu_features.hpp"
#include "runtime/engine/rank_part.hpp"
#include "runtime/launch/thread_ranks.hpp"
#include "runtime/run/machine.hpp"
#include "tests/runtime/engine/world.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;

// What a rank does between its start and its first step, as `sluice train` has it.
int train_rank(const ForkedRun& run, const DataOptions& text, int rank, MeshComms comms) {
  set_libtorch_threads(1);
  TrainerOptions options;
  options.engine = run.engine;
  options.engine.part = part_of_rank(run.engine.model, run.engine.parallel, comms.at());
  options.engine.tiers.nvme.paths = run.engine.offload.nvme_path;
  options.engine.tiers.nvme.run_id = "forked";
  options.engine.tiers.nvme.rank = rank;
  options.engine.tiers.nvme.cache = IoCache::kDirectOrBuffered;
  options.output_dir = run.output_dir;
  options.ranks_of_process = world_size(run.engine);
  options.saving.checkpoint = {.dir = run.output_dir + "/checkpoints",
                               .every = {.steps = run.every},
                               .keep = 1,
                               .async = run.async};
  options.saving.on = true;
  options.saving.resume = "auto";
  const TrainingData data(text, run.engine.model.seq, run.engine.train.seed);
  Watchdog watchdog({.timeout = std::chrono::seconds(60)});
  return run_trainer(options, comms, data, watchdog);
}

int train_ranks(const ForkedRun& run, const DataOptions& text) {
  arm_failpoints(run.failpoints);
  enable_flush_to_zero();
  fs::create_directories(run.output_dir);
  check_resume(local_file_system(), {.from = "auto", .dir = run.output_dir + "/checkpoints"});
  std::vector<std::optional<MeshComms>> comms;
  ParallelOptions parallel = run.engine.parallel;
  parallel.data = run.engine.dp;
  const int ranks = world_size(run.engine);
  std::vector<MeshComms> of_mesh = make_local_mesh_comms(
      Mesh(parallel, ranks), {.tied = parallel.pipeline > 1 && run.engine.model.tie_embeddings,
                              .wraps = parallel.virtual_stages > 1});
  for (MeshComms& mine : of_mesh) comms.emplace_back(std::move(mine));
  const auto of = [&](int rank) -> std::optional<MeshComms>& {
    return comms[static_cast<std::size_t>(rank)];
  };
  return run_thread_ranks(
      ranks,
      [&](int rank) {
        return train_rank(run, text, rank, std::move(*std::exchange(of(rank), {})));
      },
      [&](int rank) { of(rank).reset(); });
}

// Never returns: nothing of the test's own process may run here.
[[noreturn]] void be_the_run(const ForkedRun& run, const DataOptions& text,
                             const std::string& log) {
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(out, STDERR_FILENO);
  int code = 99;
  try {
    code = train_ranks(run, text);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::fflush(nullptr);
  ::_exit(code);
}

}  // namespace

ForkedRuns::ForkedRuns() {
  std::ofstream text(folder_.file("text.txt"));
  for (int i = 0; i < 300; ++i) text << "line " << i << " of a text that repeats itself a little; ";
}

std::string ForkedRuns::path(const std::string& name) const {
  return (folder_.path() / name).string();
}

ForkedEnd ForkedRuns::train(const ForkedRun& run) const {
  DataOptions text;
  text.text = {path("text.txt")};
  text.cache_dir = path("tokens");
  const std::string log = path("log");
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) be_the_run(run, text, log);
  ForkedEnd end;
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) {
    ADD_FAILURE() << "no process for a run";
    return end;
  }
  end.killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  end.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  end.log = text_of(log);
  return end;
}

std::vector<std::string> ForkedRuns::curve(const std::string& output_dir) const {
  std::vector<std::string> steps;
  std::ifstream metrics(output_dir + "/metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) {
    steps.push_back(line.substr(0, line.find("\"skipped\"")));  // the times come after it
    const std::size_t evaluated = line.find("\"eval_loss\"");
    if (evaluated != std::string::npos) steps.back() += line.substr(evaluated);
  }
  return steps;
}

}  // namespace sluice::testing
