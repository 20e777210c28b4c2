// Invariant 1 for the llama family: a stage changes no bit of its training.
#include <gtest/gtest.h>

#include "tests/runtime/engine/world.hpp"

namespace sluice::testing {
namespace {

struct Family {
  const char* name;
  ModelOptions model;
};

ModelOptions family_options(ModelType type) {
  ModelOptions model = tiny_options().model;
  model.type = type;
  model.heads = 4;
  model.kv_heads = 2;
  model.ffn = 88;
  model.tie_embeddings = type == ModelType::kQwen2;
  if (type == ModelType::kMistral) model.sliding_window = 5;
  return model;
}

class Families : public ::testing::TestWithParam<Family> {};

TEST_P(Families, StagesAndRecomputationAreBitIdentical) {
  EngineOptions options = tiny_options();
  options.model = GetParam().model;
  options.dp = 2;
  options.train.global_batch = 8;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    options.train.dtype = dtype;
    options.zero.stage = 0;
    options.recompute.mode = RecomputeMode::kNone;
    const WorldResult oracle = train_world(options, 3, Wire::kLocal);
    EXPECT_LT(oracle.losses.back(), oracle.losses.front());
    options.recompute.mode = RecomputeMode::kFull;
    for (const int stage : {1, 2, 3}) {
      options.zero.stage = stage;
      const WorldResult result = train_world(options, 3, Wire::kLocal);
      EXPECT_EQ(result.losses, oracle.losses) << stage;
      EXPECT_EQ(result.norms, oracle.norms) << stage;
      EXPECT_EQ(result.eval_loss, oracle.eval_loss) << stage;
      EXPECT_TRUE(result.weights == oracle.weights) << stage;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Llama, Families,
                         ::testing::Values(Family{"llama", family_options(ModelType::kLlama)},
                                           Family{"mistral", family_options(ModelType::kMistral)},
                                           Family{"qwen2", family_options(ModelType::kQwen2)}),
                         [](const ::testing::TestParamInfo<Family>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace sluice::testing
