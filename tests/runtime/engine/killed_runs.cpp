#include "tests/runtime/engine/killed_runs.hpp"

#include <algorithm>
#include <span>

#include "tests/runtime/engine/saved_world.hpp"

namespace sluice::testing {

EngineOptions engine_of_two(int steps) {
  EngineOptions options = tiny_options();
  options.model = {.layers = 1, .hidden = 16, .heads = 2, .vocab = 257, .seq = 8};
  options.dp = 2;
  options.train.micro_batch = 1;
  options.train.global_batch = 2;
  options.train.steps = steps;
  options.train.eval_steps = 1;
  options.zero.stage = 1;
  return options;
}

void KilledRuns::run_whole() {
  const ForkedEnd end = runs_.train(named("whole"));
  ASSERT_EQ(end.exit_code, 0) << end.log;
  ASSERT_EQ(std::ssize(runs_.curve(runs_.path("whole"))), run_.engine.train.steps);
  states_ = states_in(runs_.path("whole/checkpoints"));
}

int KilledRuns::kill_at(const std::string& failpoint, int first, int stride) {
  int killed = 0;
  for (int pass = first;; pass += stride, ++killed) {
    const std::string failing = failpoint + "@" + std::to_string(pass) + ":kill";
    SCOPED_TRACE(failing);
    if (!kill_and_go_on(failing) || HasFailure()) break;
  }
  return killed;
}

bool KilledRuns::kill_and_go_on(const std::string& failing) {
  begin_anew();
  ForkedRun run = named("run");
  run.failpoints = failing;
  const ForkedEnd end = runs_.train(run);
  EXPECT_TRUE(end.killed || end.exit_code == 0) << end.exit_code << "\n" << end.log;
  ended(end.killed);
  expect_like_whole();
  return end.killed;
}

void KilledRuns::expect_like_whole() const {
  EXPECT_EQ(runs_.curve(runs_.path("run")), runs_.curve(runs_.path("whole")));
  const auto states = states_in(runs_.path("run/checkpoints"));
  ASSERT_EQ(states.size(), states_.size());
  for (const auto& [name, values] : states) {
    const std::vector<float>& whole = states_.at(name);
    EXPECT_TRUE(
        std::ranges::equal(std::as_bytes(std::span(values)), std::as_bytes(std::span(whole))))
        << name;
  }
}

ForkedRun KilledRuns::named(const std::string& name) const {
  ForkedRun run = run_;
  run.output_dir = runs_.path(name);
  if (run.engine.offload.optimizer == Tier::kNvme) {
    run.engine.offload.nvme_path = {runs_.path("swap-" + name)};
  }
  return run;
}

std::string KilledRuns::go_on() const {
  const ForkedEnd end = runs_.train(named("run"));
  EXPECT_EQ(end.exit_code, 0) << end.log;
  return end.log;
}

}  // namespace sluice::testing
