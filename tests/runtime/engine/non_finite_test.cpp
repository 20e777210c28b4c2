// A NaN is traced to the rank, unit and phase that made it first, and nothing is updated.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/failpoint.hpp"
#include "runtime/model/tensor_view.hpp"
#include "tests/runtime/engine/world.hpp"

namespace sluice::testing {
namespace {

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

}  // namespace
}  // namespace sluice::testing
