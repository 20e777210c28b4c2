#include "runtime/plan/search/evaluator.hpp"

#include <gtest/gtest.h>

#include "tests/runtime/plan/small.hpp"

namespace sluice {
namespace {

// In layer order the first micro-batches run beside an update on the host that takes longer, so the
// third adds less than the last one.
TEST(Evaluator, ComputeThatALongUpdateHidesAtFirst) {
  MachineProfile machine = named_profile("h100-sxm");
  machine.adam_params_per_s.fp32 /= 64;
  machine.adam_params_per_s.bf16 /= 64;
  machine.gemm_flops.bf16 /= 10000;
  Planner planner(machine);
  EngineOptions options = testing::small_options(1);
  options.model.on_gpu = true;
  options.zero.stage = 2;
  options.offload.optimizer = options.offload.gradients = Tier::kHost;
  options.train.accumulation_order = AccumulationOrder::kLayer;
  options.train.micro_batch = 1;
  Evaluator evaluator(planner, {});
  options.train.global_batch = 64;
  const double planned = evaluator.plan_in_full(options).time.step_s;
  EXPECT_NEAR(evaluator.evaluate(options).time.step_s / planned, 1, 0.1);
}

}  // namespace
}  // namespace sluice
