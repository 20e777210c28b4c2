// A NaN is traced to the rank, unit and phase that made it first, and nothing is updated.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "base/failpoint.hpp"
#include "base/thread_rank.hpp"
#include "runtime/model/tensor_view.hpp"
#include "tests/runtime/engine/world.hpp"

namespace sluice::testing {
namespace {

// Four layers on two stages of two data ranks: ranks 0 and 1 have the first stage. Four
// micro-batches a rank.
EngineOptions two_by_two(PipelineSchedule schedule) {
  EngineOptions options = tiny_options();
  options.model.layers = 4;
  options.dp = 2;
  options.parallel.pipeline = 2;
  options.parallel.schedule = schedule;
  if (schedule == PipelineSchedule::kInterleaved) options.parallel.virtual_stages = 2;
  options.train.micro_batch = 1;
  options.train.global_batch = 8;
  return options;
}

constexpr PipelineSchedule kSchedules[] = {PipelineSchedule::kGpipe, PipelineSchedule::k1f1b,
                                           PipelineSchedule::kInterleaved,
                                           PipelineSchedule::kZeroBubble};

void multiply_parameter(Engine& engine, const std::string& name, double factor) {
  at::Tensor param = engine.full_parameter(name);
  param.mul_(factor);
  engine.set_parameter(name, param);
}

TEST(NonFinite, IsTracedToItsUnitOnEveryStage) {
  for (const int stage : {0, 1, 2, 3}) {
    EngineOptions options = tiny_options();
    options.dp = 2;
    options.zero.stage = stage;
    options.train.global_batch = 8;
    arm_failpoints("engine.forward.2.2:nan");
    run_world(options, Wire::kLocal, [&](int, Engine& engine) {
      EXPECT_TRUE(engine.train_step({.step = 1, .lr = 1e-2}).finite());
      const at::Tensor before = engine.full_parameter("wte.weight");
      EXPECT_FALSE(engine.train_step({.step = 2, .lr = 1e-2}).finite());
      EXPECT_TRUE(before.equal(engine.full_parameter("wte.weight")));
      EXPECT_EQ(engine.find_non_finite(2), "rank 0, unit h.1, forward, micro-batch 0");
    });
    arm_failpoints("");
  }
}

TEST(NonFinite, InAWeightIsFoundWhereItIsFirstUsed) {
  EngineOptions options = tiny_options();
  options.dp = 2;
  options.zero.stage = 3;
  for (const MatmulType matmul : {MatmulType::kNative, MatmulType::kFp8}) {
    options.model.matmul = matmul;
    options.train.dtype = matmul == MatmulType::kFp8 ? DType::kBFloat16 : DType::kFloat32;
    for (const char* name : {"h.0.mlp.c_fc.bias", "h.0.mlp.c_fc.weight"}) {
      for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
        run_world(options, Wire::kLocal, [&](int, Engine& engine) {
          at::Tensor param = engine.full_parameter(name);
          host_data<float>(param)[3] = bad;
          engine.set_parameter(name, param);
          EXPECT_FALSE(engine.train_step({.step = 1, .lr = 1e-2}).finite());
          EXPECT_EQ(engine.find_non_finite(1), "rank 0, unit h.0, forward, micro-batch 0");
        });
      }
    }
  }
}

TEST(NonFinite, OverflowOfAGradientAloneIsFoundInBackward) {
  EngineOptions options = tiny_options();
  run_world(options, Wire::kLocal, [&](int, Engine& engine) {
    // The forward normalises a huge bias away; its product with the gradient does not stay finite.
    at::Tensor bias = engine.full_parameter("ln_f.weight");
    bias.fill_(1e38);
    engine.set_parameter("ln_f.weight", bias);
    EXPECT_FALSE(engine.train_step({.step = 1, .lr = 1e-2}).finite());
    const std::string where = engine.find_non_finite(1);
    EXPECT_TRUE(where == "rank 0, unit head, loss, micro-batch 0") << where;
  });
}

TEST(NonFinite, OfOneDataRankOfAStageIsTracedToThatRank) {
  for (const PipelineSchedule schedule : kSchedules) {
    const EngineOptions options = two_by_two(schedule);
    for (int bad = 0; bad < 4; ++bad) {
      SCOPED_TRACE(describe_mesh(options) + ", rank " + std::to_string(bad));
      // The second of four micro-batches, in the step and in the search.
      const std::string action = ":rank=" + std::to_string(bad) + ":nan";
      arm_failpoints("engine.forward.1.1@2" + action + ";engine.forward.1.1@6" + action);
      run_world(options, Wire::kLocal, [&](int rank, Engine& engine) {
        const ThreadRank here(rank);
        EXPECT_FALSE(engine.train_step({.step = 1, .lr = 1e-2}).finite());
        EXPECT_EQ(engine.find_non_finite(1), "rank " + std::to_string(bad) + ", unit " +
                                                 (bad < 2 ? "h.0" : "h.3") +
                                                 ", forward, micro-batch 1");
      });
      arm_failpoints("");
    }
  }
}

// A scale of the loss makes gradients large. A large weight of a norm before a small weight of the
// next layer changes no output; the gradient of the next layer's weight overflows.
TEST(NonFinite, OfAWeightsGradientIsTracedToItsUnit) {
  const struct {
    const char *large, *small, *place;
  } kCases[] = {
      {"h.0.ln_2.weight", "h.0.mlp.c_fc.weight", "rank 0, unit h.0, backward, micro-batch 0"},
      {"h.3.ln_1.weight", "h.3.attn.c_attn.weight", "rank 2, unit h.3, backward, micro-batch 0"},
      {"ln_f.weight", "lm_head.weight", "rank 2, unit head, loss, micro-batch 0"},
  };
  for (const PipelineSchedule schedule : kSchedules) {
    EngineOptions options = two_by_two(schedule);
    options.model.tie_embeddings = false;
    for (const auto& c : kCases) {
      SCOPED_TRACE(describe_mesh(options) + ", " + c.small);
      run_world(options, Wire::kLocal, [&](int, Engine& engine) {
        multiply_parameter(engine, c.large, 1e15);
        multiply_parameter(engine, c.small, 1e-15);
        EXPECT_TRUE(engine.train_step({.step = 1, .lr = 0}).finite());
        EXPECT_FALSE(engine.train_step({.step = 2, .lr = 0, .loss_scale = 1e31}).finite());
        EXPECT_EQ(engine.find_non_finite(2), c.place);
      });
    }
  }
}

}  // namespace
}  // namespace sluice::testing
