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

// A micro-batch needs memory beside the arena: its batch.
TEST(Evaluator, ManyMicroBatchesHaveTheDeviceMemoryOfTheirPlan) {
  Planner planner(named_profile("h100-sxm"));
  EngineOptions options = testing::small_options(2);
  options.model.on_gpu = true;
  options.train.global_batch = options.train.micro_batch * 2 * 40;
  Evaluator evaluator(planner, {});
  for (const int stage : {0, 1, 2, 3}) {
    for (const Tier optimizer : {Tier::kDevice, Tier::kHost}) {
      options.zero.stage = stage;
      options.offload.optimizer = optimizer;
      const RunPlan planned = evaluator.plan_in_full(options);
      const RunPlan drawn = evaluator.evaluate(options);
      EXPECT_EQ(drawn.peak(Tier::kDevice), planned.peak(Tier::kDevice)) << stage;
    }
  }
}

}  // namespace
}  // namespace sluice
