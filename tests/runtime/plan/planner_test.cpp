// A plan is the program that runs: what the planner keeps from one configuration to the next must
// not change it.
#include "runtime/plan/planner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "runtime/program/program_text.hpp"
#include "runtime/program/write/step_writer.hpp"
#include "tests/runtime/plan/small.hpp"

namespace sluice {
namespace {

using testing::small_options;

std::string key_of(const Program& program) {
  std::string text = list(program) + std::to_string(program.arena_bytes) + "/" +
                     std::to_string(program.host_arena_bytes);
  for (const StateRow& p : program.states.rows) {
    text += " " + std::string(name_of(p.tag)) + std::to_string(p.tier_bytes());
  }
  return text;
}

// Program of the engine's own way to it: model, plan_step, writer.
std::string straight(const EngineOptions& options) {
  const Model model = make_model(options.model);
  return key_of(write_train_step(plan_step(options, model).shape));
}

// The units of a GPU's run, on meshes too; a run that GPUs refuse is planned with the host's.
TEST(Planner, ProfilesTheUnitsThatRunOnAGpu) {
  EngineOptions options = small_options();
  options.model.on_gpu = true;
  const auto planned = [](const EngineOptions& of) {
    Planner planner(named_profile("h100-sxm"));
    return key_of(write_train_step(planner.shape_of(planner.at_stage(of, 0)).shape));
  };
  EXPECT_EQ(planned(options), straight(options));
  EngineOptions host = options;
  host.model.on_gpu = false;
  EXPECT_NE(straight(options), straight(host));
  for (EngineOptions* both : {&options, &host}) {
    both->recompute.mode = RecomputeMode::kSelective;
    both->model.recompute_attention = true;
  }
  EXPECT_EQ(planned(options), straight(options));
  EXPECT_NE(straight(options), straight(host));
}

TEST(Planner, UpdatesInTheBackwardWithoutAClip) {
  arm_failpoints("plan.passing_gradients:nan");
  EngineOptions options = small_options();
  const auto in_backward = [&] {
    return plan_step(options, make_model(options.model)).shape.updates_in_backward;
  };
  options.model.on_gpu = true;
  options.train.dtype = DType::kBFloat16;
  options.train.global_batch = options.train.micro_batch * options.dp;
  EXPECT_FALSE(in_backward());
  options.train.clip = 0;
  EXPECT_TRUE(in_backward());
  options.train.dtype = DType::kFloat16;  // a step may be thrown away for its loss scale
  EXPECT_FALSE(in_backward());
  options.train.dtype = DType::kFloat32;
  EXPECT_TRUE(in_backward());
  options.offload.optimizer = Tier::kHost;
  EXPECT_FALSE(in_backward());
  options.offload.optimizer = Tier::kDevice;
  options.model.on_gpu = false;
  EXPECT_FALSE(in_backward());
  arm_failpoints("");
}

// Its programs have several micro-batches, of which gradients may not pass.
TEST(Planner, TokensThatHideALaneOfAPlanWhoseGradientsPass) {
  arm_failpoints("plan.passing_gradients:nan");
  Planner planner(named_profile("h100-sxm"));
  for (const double clip : {0.0, 1.0}) {
    EngineOptions options = small_options(2);
    options.model.on_gpu = true;
    options.zero.stage = 1;
    options.train.clip = clip;
    options.train.global_batch = options.train.micro_batch * options.dp;
    const RunPlan plan = planner.plan({options, {}});
    ASSERT_GT(nth(plan.shape.groups, 1).passing_gradient_bytes, 0);
    const LaneSeconds hiding =
        hiding_tokens(plan.shape, planner.rates(options), 64, options.train.accumulation_order);
    EXPECT_GT(hiding[static_cast<std::size_t>(Lane::kComm)], 0);
  }
  arm_failpoints("");
}

// In micro order, several micro-batches refuse bf16 gradients off the device.
TEST(Planner, TokensThatHideALaneOfAPlanWithNarrowGradients) {
  Planner planner(named_profile("h100-sxm"));
  EngineOptions options = small_options();
  options.train.dtype = DType::kBFloat16;
  options.train.global_batch = options.train.micro_batch * options.dp;
  options.zero.stage = 2;
  options.offload.optimizer = options.offload.gradients = Tier::kHost;
  options.offload.gradients_dtype = DType::kBFloat16;
  const RunPlan plan = planner.plan({options, {}});
  const LaneSeconds hiding =
      hiding_tokens(plan.shape, planner.rates(options), 64, AccumulationOrder::kMicro);
  EXPECT_GT(*std::max_element(hiding.begin(), hiding.end()), 0);
}

// The order, and when gradients are reduced, are only of several micro-batches.
TEST(Planner, OneMicroBatchHasOnePlanInBothOrders) {
  Planner planner(named_profile("h100-sxm"));
  for (const int stage : {0, 1, 2, 3}) {
    for (const int i : {0, 1, 2, 3}) {
      const bool leaves = i % 2 == 1;
      EngineOptions options = small_options(i < 2 ? 4 : 1);
      options.train.global_batch = options.train.micro_batch * options.dp;
      options.zero.stage = stage;
      options.zero.bucket_bytes = 1 << 20;  // several units
      if (leaves) options.offload.optimizer = Tier::kHost;
      if (leaves && stage >= 2) options.offload.gradients = Tier::kHost;
      const RunPlan micro = planner.plan({options, {}});
      options.zero.reduce_every = ReduceEvery::kStep;
      const RunPlan step = planner.plan({options, {}});
      options.train.accumulation_order = AccumulationOrder::kLayer;
      const RunPlan layer = planner.plan({options, {}});
      EXPECT_EQ(key_of(micro.program), key_of(layer.program)) << "stage " << stage << leaves;
      EXPECT_EQ(key_of(micro.program), key_of(step.program)) << "stage " << stage << leaves;
      EXPECT_NO_THROW(
          (void)hiding_tokens(step.shape, planner.rates(options), 64, AccumulationOrder::kMicro));
    }
  }
}

// 2^24 operations take 14 GiB: the plan is refused before its program is written.
TEST(Planner, RefusesAProgramThatFillsTheMemory) {
  Planner planner(named_profile("h100-sxm"));
  EngineOptions options = small_options();
  const auto complaint = [&](std::int64_t micro_batches) -> std::string {
    options.train.global_batch = options.train.micro_batch * options.dp * micro_batches;
    std::string text;
    try {
      (void)planner.plan({options, {}});
    } catch (const ConfigError& error) {
      text = error.what();
    }
    try {
      (void)plan_step(options, make_dry_model(options.model, options.part));
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.what(), text);
      return text;
    }
    return text.empty() ? "" : "only plans refuse: " + text;
  };
  EXPECT_EQ(complaint(2000), "");
  for (const std::int64_t many : {std::int64_t{4'000'000}, std::int64_t{1} << 33}) {
    const std::string text = complaint(many);
    EXPECT_EQ(text.find("train.global_batch: a step of " + std::to_string(many)), 0U) << text;
    EXPECT_NE(text.find("counts samples, not tokens: give fewer samples, or a larger "
                        "train.micro_batch"),
              std::string::npos)
        << text;
  }
}

// A bucket that would go on with the next unit keeps gradients of the one before. Between devices
// it saves exchanges.
TEST(Planner, BucketsOfOneMicroBatchEndWithTheirUnit) {
  Planner planner(named_profile("h100-sxm"));
  EngineOptions options = small_options();
  options.train.global_batch = options.train.micro_batch * options.dp;
  options.zero.stage = 2;
  options.zero.bucket_bytes = 1 << 20;
  const auto reductions = [&] {
    const Program program = planner.plan({options, {}}).program;
    return std::count_if(program.ops.begin(), program.ops.end(),
                         [](const Op& op) { return op.kind == OpKind::kReduceGrads; });
  };
  EXPECT_EQ(reductions(), 1);
  options.offload.optimizer = options.offload.gradients = Tier::kHost;
  EXPECT_GE(reductions(), options.model.layers + 1);
}

TEST(Planner, CachedShapesAreThoseOfTheEngine) {
  Planner planner(named_profile("h100-sxm"));
  int compared = 0;
  for (const int stage : {3, 0, 2, 1}) {
    for (const RecomputeMode mode :
         {RecomputeMode::kFull, RecomputeMode::kNone, RecomputeMode::kSelective}) {
      for (const int variant : {0, 1, 2, 3, 4}) {
        EngineOptions options = small_options(variant == 3 ? 3 : 4);
        options.zero.stage = stage;
        options.zero.persist_below = variant == 1 ? 20'000 : 0;
        options.recompute.mode = mode;
        options.model.recompute_attention = mode == RecomputeMode::kSelective;
        if (variant == 1) {
          options.offload.optimizer = Tier::kHost;
          options.offload.states_dtype = DType::kBFloat16;
        }
        if (variant == 2) {
          options.train.accumulation_order = AccumulationOrder::kLayer;
          options.train.micro_batch = 1;
          if (mode == RecomputeMode::kFull) options.offload.activations = Tier::kNvme;
        }
        if (variant == 3) {
          options.train.global_batch = 12;
          if (stage < 2) options.zero.reduce_every = ReduceEvery::kStep;
        }
        if (variant == 2 && stage % 2 == 1) options.zero.reduce_every = ReduceEvery::kStep;
        if (variant == 4) {
          options.train.accumulation_order = AccumulationOrder::kLayer;
          options.offload.gradients_dtype = DType::kBFloat16;
          options.offload.optimizer = Tier::kHost;
          if (stage >= 2) options.offload.gradients = Tier::kHost;
        }
        EXPECT_EQ(key_of(write_train_step(planner.shape_of(options).shape)), straight(options))
            << "stage " << stage << " variant " << variant;
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 60);
}

TEST(Planner, PhasesReachThePeak) {
  Planner planner(named_profile("cpu"));
  EngineOptions options = small_options();
  options.offload.optimizer = Tier::kNvme;
  const RunPlan plan = planner.plan({options, {}});
  for (const Tier tier : {Tier::kDevice, Tier::kNvme}) {
    std::int64_t highest = 0;
    for (const PhaseMemory& phase : plan.phases[static_cast<std::size_t>(tier)]) {
      std::int64_t tags = 0;
      for (const std::int64_t bytes : phase.by_tag) tags += bytes;
      EXPECT_LE(tags, phase.peak);
      highest = std::max(highest, phase.peak);
    }
    EXPECT_EQ(highest, add_up(plan.program, tier).peak());
    EXPECT_EQ(highest, plan.peak(tier));
  }
}

TEST(Planner, ModelFlopsAndTokensAreOfTheWholeStep) {
  Planner planner(named_profile("a100-80g"));
  EngineOptions options = small_options();
  const RunPlan plan = planner.plan({options, {}});
  EXPECT_EQ(plan.tokens_per_step, options.train.global_batch * options.model.seq);
  options.train.global_batch *= 3;
  const RunPlan triple = planner.plan({options, {}});
  EXPECT_EQ(triple.tokens_per_step, 3 * plan.tokens_per_step);
  EXPECT_DOUBLE_EQ(triple.model_flops_per_step, 3 * plan.model_flops_per_step);
  EXPECT_GT(plan.mfu(), 0);
  EXPECT_LT(plan.mfu(), 1);
}

TEST(Planner, SelectiveRecomputationIsNotFree) {
  Planner planner(named_profile("h100-sxm"));
  EngineOptions options = small_options();
  const RunPlan none = planner.plan({options, {}});
  options.recompute.mode = RecomputeMode::kSelective;
  options.model.recompute_attention = true;
  const RunPlan selective = planner.plan({options, {}});
  double extra = 0;
  for (std::size_t i = 0; i < none.program.ops.size(); ++i) {
    extra += selective.program.ops[i].flops - none.program.ops[i].flops;
  }
  // 5 micro-batches of 2 samples, 4 blocks: scores and their product with values, causal.
  const double pairs = 32.0 * 33 / 2;
  const double all = 5 * 2 * 4 * (2 * 2 * 64 * 32.0 * 32);
  EXPECT_GT(extra, 0.4 * all);
  EXPECT_LT(extra, 1.1 * 5 * 2 * 4 * 2 * 2 * 64 * pairs);
  // The engine's own program, which a run is compared with, knows it as well.
  const Model model = make_model(options.model);
  const Program own = write_train_step(plan_step(options, model).shape);
  ASSERT_EQ(own.ops.size(), selective.program.ops.size());
  for (std::size_t i = 0; i < own.ops.size(); ++i) {
    EXPECT_EQ(own.ops[i].flops, selective.program.ops[i].flops) << i;
  }
}

// Every group stays on the device: what the key asks for would be ignored.
TEST(Planner, ParametersThatNeverMoveHaveNoOtherTier) {
  EngineOptions options = small_options();
  options.zero.stage = 3;
  options.offload.optimizer = Tier::kHost;
  options.offload.parameters = Tier::kHost;
  const Model model = make_model(options.model);
  std::int64_t largest = 0;
  for (const GroupPlan& group : plan_step(options, model).groups) {
    largest = std::max(largest, group.param_elems);
  }
  options.zero.persist_below = largest;
  EXPECT_NO_THROW((void)plan_step(options, model));
  options.zero.persist_below = largest + 1;
  try {
    (void)plan_step(options, model);
    FAIL() << "nothing moves";
  } catch (const ConfigError& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "offload.parameters: host moves nothing: the model's largest group of parameters has " +
            std::to_string(largest) +
            " elements, and zero.persist_below: " + std::to_string(largest + 1) +
            " keeps groups of fewer gathered on the device; lower that, or leave parameters "
            "on the device");
  }
  EXPECT_THROW((void)Planner(named_profile("h100-sxm")).plan({options, {}}), ConfigError);
  options.offload.parameters = Tier::kDevice;
  EXPECT_NO_THROW((void)plan_step(options, model));
}

TEST(Planner, AKnownGpuIsItsOwnBudget) {
  MachineProfile machine = named_profile("h100-sxm");
  Planner planner(machine);
  const PlanQuestion question{small_options(), {}};
  EXPECT_EQ(planner.plan(question).memory.of(Tier::kDevice).budget,
            machine.device_memory_bytes - machine.device_overhead_bytes);
  PlanQuestion given = question;
  given.budgets.device = 1000;
  const RunPlan plan = planner.plan(given);
  EXPECT_EQ(plan.memory.of(Tier::kDevice).budget, 1000);
  EXPECT_FALSE(plan.fits());
  EXPECT_EQ(plan.missing(), plan.memory.of(Tier::kDevice).need() - 1000);
  machine.device_memory_bytes = machine.device_overhead_bytes - 1;
  const RunPlan none = Planner(machine).plan(question);
  EXPECT_EQ(none.memory.of(Tier::kDevice).budget, 1) << "smaller than CUDA's context";
  EXPECT_FALSE(none.fits());
}

TEST(Planner, TokensThatHideTheDisk) {
  MachineProfile machine = named_profile("h100-sxm");
  EngineOptions options = small_options();
  options.offload.optimizer = Tier::kNvme;
  Planner planner(machine);
  const StepShape shape = planner.shape_of(options).shape;
  const Rates rates = planner.rates(options);
  const std::int64_t tokens_each = 2 * 4 * 32;
  const double tokens = hiding_tokens(
      shape, rates, tokens_each, AccumulationOrder::kMicro)[static_cast<std::size_t>(Lane::kDisk)];
  ASSERT_GT(tokens, 0);
  ASSERT_TRUE(std::isfinite(tokens));
  // From there on compute is busier than the disk, just before it is not.
  const auto excess = [&](int micro_batches) {
    StepShape other = shape;
    other.micro_batches = micro_batches;
    const LaneSeconds busy = predict_time(write_train_step(other), other, rates).busy;
    return busy[static_cast<std::size_t>(Lane::kCompute)] -
           busy[static_cast<std::size_t>(Lane::kDisk)];
  };
  const double micro_batches = tokens / static_cast<double>(tokens_each);
  EXPECT_GE(excess(static_cast<int>(std::ceil(micro_batches + 1e-6))), -1e-9);
  EXPECT_LT(excess(static_cast<int>(std::floor(micro_batches - 1e-6))), 1e-9);
}

}  // namespace
}  // namespace sluice
