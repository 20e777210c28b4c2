// Tensor, sequence and pipeline parallelism against one rank at the same global batch, with every
// ZeRO stage; and on one mesh, what no layout of states may change: bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "runtime/model/tensor_view.hpp"
#include "tests/runtime/engine/world.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"
#include "tests/slow_tests.hpp"

namespace sluice::testing {
namespace {

constexpr double kLossTolerance = 2e-5;
constexpr double kWeightTolerance = 1e-5;

int steps() { return slow_tests() ? 20 : 4; }

EngineOptions small_options() {
  EngineOptions options = tiny_options();
  options.model = {.layers = 3, .hidden = 32, .heads = 4, .vocab = 61, .seq = 16};
  options.model.tie_embeddings = true;
  options.train.micro_batch = 1;
  options.train.global_batch = 8;
  options.optimizer.lr = 1e-3;
  return options;
}

EngineOptions on_mesh(EngineOptions options, int tensor, int data, int pipeline) {
  options.parallel.tensor = tensor;
  options.dp = data;
  options.parallel.pipeline = pipeline;
  return options;
}

void expect_near(const WorldResult& many, const WorldResult& one, const std::string& what) {
  ASSERT_EQ(many.losses.size(), one.losses.size()) << what;
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(many.losses[i] / one.losses[i], 1.0, kLossTolerance) << what << ", step " << i + 1;
    EXPECT_NEAR(many.norms[i] / one.norms[i], 1.0, 1e-4) << what << ", step " << i + 1;
  }
  EXPECT_NEAR(many.eval_loss / one.eval_loss, 1.0, kLossTolerance) << what;
  ASSERT_EQ(many.weights.size(), one.weights.size()) << what;
  for (const auto& [name, values] : one.weights) {
    const std::vector<float>& others = many.weights.at(name);
    ASSERT_EQ(others.size(), values.size()) << what << ": " << name;
    double worst = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      worst = std::max(worst, static_cast<double>(std::abs(others[i] - values[i])));
    }
    EXPECT_LT(worst, kWeightTolerance) << what << ": " << name;
  }
}

TEST(TensorParallel, InitialWeightsAreThoseOfOneRank) {
  const EngineOptions options = small_options();
  const WorldResult one = train_world(options, 0, Wire::kLocal);
  for (const int stage : {0, 3}) {
    EngineOptions many = on_mesh(options, 2, 2, 1);
    many.zero.stage = stage;
    const WorldResult result = train_world(many, 0, Wire::kLocal);
    for (const auto& [name, values] : one.weights) {
      EXPECT_TRUE(values == result.weights.at(name)) << name;
    }
  }
}

// Weights that are given, and not all of them: by element of the whole parameter.
TEST(Mesh, GivenWeightsComeToTheirRanks) {
  EngineOptions options = small_options();
  options.initial_weights = [](const std::string& name, std::int64_t begin,
                               std::span<float> values) -> std::int64_t {
    constexpr std::int64_t kHad = 300;
    if (!name.ends_with("c_attn.weight")) return 0;
    const std::int64_t had =
        std::clamp<std::int64_t>(kHad - begin, 0, static_cast<std::int64_t>(values.size()));
    for (std::int64_t i = 0; i < had; ++i) {
      values[static_cast<std::size_t>(i)] = static_cast<float>(begin + i);
    }
    return had;
  };
  const WorldResult one = train_world(options, 0, Wire::kLocal);
  EXPECT_EQ(one.weights.at("h.1.attn.c_attn.weight")[299], 299.0F);
  EXPECT_NE(one.weights.at("h.1.attn.c_attn.weight")[300], 300.0F);
  EngineOptions many = on_mesh(options, 2, 2, 2);
  many.zero.stage = 3;
  EXPECT_TRUE(train_world(many, 0, Wire::kLocal).weights == one.weights);
}

// A mesh at stage 0 is near one rank; other stages and recomputation change no bit of it.
void expect_one_rank_on_every_stage(EngineOptions many, const WorldResult& one) {
  const WorldResult oracle = train_world(many, steps(), Wire::kLocal);
  expect_near(oracle, one, describe_mesh(many));
  for (const int stage : {1, 2, 3}) {
    for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kFull}) {
      many.zero.stage = stage;
      many.recompute.mode = mode;
      expect_same_bits(train_world(many, steps(), Wire::kLocal), oracle,
                       describe_mesh(many) + " stage " + std::to_string(stage));
    }
  }
}

TEST(TensorParallel, TrainsAsOneRankDoesOnEveryStage) {
  const EngineOptions options = small_options();
  const WorldResult one = train_world(options, steps(), Wire::kLocal);
  for (const int data : {1, 2}) {
    for (const bool sequence : {false, true}) {
      EngineOptions many = on_mesh(options, 2, data, 1);
      many.parallel.sequence = sequence;
      expect_one_rank_on_every_stage(many, one);
    }
  }
}

TEST(PipelineParallel, TrainsAsOneRankDoesOnEveryStage) {
  const EngineOptions options = small_options();
  const WorldResult one = train_world(options, steps(), Wire::kLocal);
  for (const int data : {1, 2}) {
    for (const PipelineSchedule schedule :
         {PipelineSchedule::kGpipe, PipelineSchedule::k1f1b, PipelineSchedule::kZeroBubble}) {
      EngineOptions many = on_mesh(options, 1, data, 2);
      many.parallel.schedule = schedule;
      expect_one_rank_on_every_stage(many, one);
    }
  }
}

TEST(PipelineParallel, VirtualStagesAndUnevenCuts) {
  EngineOptions options = small_options();
  options.model.layers = 5;
  options.train.global_batch = 6;
  const WorldResult one = train_world(options, steps(), Wire::kLocal);
  for (const int pipeline : {2, 3}) {
    EngineOptions many = on_mesh(options, 1, 1, pipeline);
    many.parallel.virtual_stages = 2;
    many.parallel.schedule = PipelineSchedule::kInterleaved;
    const WorldResult oracle = train_world(many, steps(), Wire::kLocal);
    expect_near(oracle, one, describe_mesh(many));
    many.zero.stage = 3;
    expect_same_bits(train_world(many, steps(), Wire::kLocal), oracle, "stage 3");
  }
  for (const int pipeline : {3, 4}) {
    const EngineOptions many = on_mesh(options, 1, 1, pipeline);
    expect_near(train_world(many, steps(), Wire::kLocal), one, describe_mesh(many));
  }
}

// Who runs a block changes no sum: the bits are those of the cut by FLOP.
TEST(PipelineParallel, GivenStagesTrainAsBalancedOnes) {
  EngineOptions options = small_options();
  options.model.layers = 5;
  EngineOptions many = on_mesh(options, 1, 1, 2);
  const WorldResult balanced = train_world(many, steps(), Wire::kLocal);
  many.parallel.stage_layers = {1, 4};
  expect_same_bits(train_world(many, steps(), Wire::kLocal), balanced, "1 + 4 layers");
  many.parallel.virtual_stages = 2;
  many.parallel.schedule = PipelineSchedule::kInterleaved;
  many.parallel.stage_layers = {2, 1, 1, 1};
  expect_near(train_world(many, steps(), Wire::kLocal), balanced, "2 + 1 + 1 + 1 layers");
}

struct Shape {
  std::string name;
  ModelOptions model;
};

std::vector<Shape> shapes() {
  Shape tied{"gpt2", {.layers = 3, .hidden = 32, .heads = 4, .vocab = 61, .seq = 16}};
  Shape untied = tied;
  untied.name = "gpt2_untied";
  untied.model.tie_embeddings = false;
  Shape llama{"llama",
              {.type = ModelType::kLlama,
               .layers = 3,
               .hidden = 32,
               .heads = 4,
               .kv_heads = 2,
               .ffn = 48,
               .vocab = 61,
               .seq = 16}};
  llama.model.tie_embeddings = false;
  Shape shared = llama;  // fewer key heads than ranks
  shared.name = "llama_one_key_head";
  shared.model.kv_heads = 1;
  shared.model.tie_embeddings = true;
  Shape qwen = llama;
  qwen.name = "qwen2";
  qwen.model.type = ModelType::kQwen2;
  return {tied, untied, llama, shared, qwen};
}

class Meshes : public ::testing::TestWithParam<Shape> {};

// Every mesh of up to four ranks, and of eight.
TEST_P(Meshes, TrainAsOneRankDoes) {
  EngineOptions options = small_options();
  options.model = GetParam().model;
  const WorldResult one = train_world(options, steps(), Wire::kLocal);
  struct Case {
    int tensor, data, pipeline;
  };
  std::vector<Case> cases;
  for (int tensor : {1, 2, 4}) {
    for (int data : {1, 2, 4}) {
      for (int pipeline : {1, 2, 3, 4}) {
        const int world = tensor * data * pipeline;
        if (world > 1 && world <= 4) cases.push_back({tensor, data, pipeline});
      }
    }
  }
  cases.push_back({2, 2, 2});
  int stage = 0;
  for (const Case& mesh : cases) {
    EngineOptions many = on_mesh(options, mesh.tensor, mesh.data, mesh.pipeline);
    for (const bool sequence : {false, true}) {
      if (sequence && mesh.tensor == 1) continue;
      many.parallel.sequence = sequence;
      many.zero.stage = stage++ % 4;
      many.recompute.mode = stage % 3 == 0 ? RecomputeMode::kFull : RecomputeMode::kNone;
      expect_near(train_world(many, steps(), Wire::kLocal), one,
                  describe_mesh(many) + " stage " + std::to_string(many.zero.stage));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Meshes, ::testing::ValuesIn(shapes()),
                         [](const ::testing::TestParamInfo<Shape>& info) {
                           return info.param.name;
                         });

TEST(Mesh, AVocabularyThatDoesNotDivide) {
  EngineOptions options = small_options();
  options.model = {.layers = 1, .hidden = 16, .heads = 2, .vocab = 50257, .seq = 8};
  options.train.global_batch = 2;
  const int count = slow_tests() ? 20 : 2;
  const WorldResult one = train_world(options, count, Wire::kLocal);
  for (const bool sequence : {false, true}) {
    EngineOptions many = on_mesh(options, 2, 1, 2);
    many.parallel.sequence = sequence;
    many.zero.stage = 1;
    expect_near(train_world(many, count, Wire::kLocal), one, describe_mesh(many));
  }
}

// One mesh, whatever its states' tiers and stages, and 16-bit parameters: the same bits.
TEST(Mesh, StagesAndTiersAreBitIdentical) {
  const TemporaryFolder folder;
  for (const auto& [dtype, matmul] : {std::pair{DType::kFloat32, MatmulType::kNative},
                                      std::pair{DType::kBFloat16, MatmulType::kNative},
                                      std::pair{DType::kBFloat16, MatmulType::kFp8}}) {
    EngineOptions options = on_mesh(small_options(), 2, 2, 2);
    options.train.dtype = dtype;
    options.model.matmul = matmul;
    if (matmul == MatmulType::kFp8) options.parallel.schedule = PipelineSchedule::kZeroBubble;
    options.parallel.sequence = true;
    const WorldResult oracle = train_world(options, 3, Wire::kLocal);
    for (const int stage : {1, 2, 3}) {
      EngineOptions away = options;
      away.zero.stage = stage;
      away.offload.nvme_path = {folder.path().string()};
      away.offload.chunk_bytes = 32 * 1024;
      away.offload.optimizer = Tier::kHost;
      expect_same_bits(train_world(away, 3, Wire::kLocal), oracle, "states on the host");
      if (stage >= 2) away.offload.gradients = Tier::kHost;
      if (stage == 3) away.offload.parameters = Tier::kNvme;
      away.offload.optimizer = Tier::kNvme;
      away.recompute.mode = RecomputeMode::kFull;
      away.offload.activations = Tier::kHost;
      expect_same_bits(train_world(away, 3, Wire::kLocal), oracle,
                       "off the device, stage " + std::to_string(stage));
    }
  }
}

// Whatever is under way on a stage: its activations leave and come back as they were.
TEST(PipelineParallel, ActivationsTravelInEverySchedule) {
  const TemporaryFolder folder;
  EngineOptions options = on_mesh(small_options(), 1, 1, 2);
  options.model.layers = 6;
  options.offload.nvme_path = {folder.path().string()};
  for (const PipelineSchedule schedule :
       {PipelineSchedule::kGpipe, PipelineSchedule::k1f1b, PipelineSchedule::kInterleaved,
        PipelineSchedule::kZeroBubble}) {
    options.parallel.schedule = schedule;
    options.parallel.virtual_stages = schedule == PipelineSchedule::kInterleaved ? 2 : 1;
    options.offload.activations = Tier::kDevice;
    options.recompute.mode = RecomputeMode::kNone;
    const WorldResult oracle = train_world(options, 3, Wire::kLocal);
    for (const Tier tier : {Tier::kHost, Tier::kNvme}) {
      for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kFull}) {
        options.offload.activations = tier;
        options.recompute.mode = mode;
        expect_same_bits(train_world(options, 3, Wire::kLocal), oracle,
                         describe_mesh(options) + " " + std::string(name_of(tier)));
      }
    }
  }
}

TEST(Mesh, DropoutIsThatOfTheSamples) {
  EngineOptions options = small_options();
  options.model.dropout = 0.2;
  const WorldResult one = train_world(options, 3, Wire::kLocal);
  for (const bool sequence : {false, true}) {
    EngineOptions many = on_mesh(options, 2, 1, 2);
    many.parallel.sequence = sequence;
    const WorldResult oracle = train_world(many, 3, Wire::kLocal);
    expect_near(oracle, one, describe_mesh(many));
    many.recompute.mode = RecomputeMode::kFull;
    many.zero.stage = 3;
    expect_same_bits(train_world(many, 3, Wire::kLocal), oracle, "recomputed");
  }
}

// Logits of a prompt, at once and token by token, come to every rank.
TEST(Mesh, LogitsAreThoseOfOneRank) {
  EngineOptions options = small_options();
  options.generate_positions = 12;
  const std::vector<std::int64_t> prompt{3, 1, 4, 1, 5, 9, 2, 6};
  SampleRows row;
  row.tokens = prompt;
  row.targets = prompt;
  std::vector<std::vector<float>> expected(2);
  const auto values_of = [](const at::Tensor& logits) {
    const float* data = host_data<float>(logits);
    return std::vector<float>(data, data + logits.numel());
  };
  run_world(options, Wire::kLocal, [&](int, Engine& engine) {
    expected[0] = values_of(engine.next_token_logits(row, 1));
    expected[1] = values_of(engine.decode(0, prompt));
  });
  for (const auto& [tensor, pipeline] : {std::pair{2, 1}, std::pair{1, 2}, std::pair{2, 2}}) {
    run_world(on_mesh(options, tensor, 1, pipeline), Wire::kLocal, [&](int rank, Engine& engine) {
      const std::vector<float> whole = values_of(engine.next_token_logits(row, 1));
      (void)engine.decode(0, std::span(prompt).first(7));
      const std::vector<float> last = values_of(engine.decode(7, std::span(prompt).last(1)));
      ASSERT_EQ(whole.size(), expected[0].size());
      ASSERT_EQ(last.size(), expected[1].size());
      for (std::size_t i = 0; i < whole.size(); ++i) {
        EXPECT_NEAR(whole[i], expected[0][i], 1e-5) << rank;
        EXPECT_NEAR(last[i], expected[1][i], 1e-5) << rank;
      }
    });
  }
}

TEST(Mesh, ANanIsTracedToTheRankThatMadeIt) {
  for (const auto& [tensor, pipeline] : {std::pair{2, 1}, std::pair{1, 2}, std::pair{2, 2}}) {
    run_world(on_mesh(small_options(), tensor, 1, pipeline), Wire::kLocal,
              [&, tensor = tensor, pipeline = pipeline](int, Engine& engine) {
                at::Tensor bias = engine.full_parameter("h.2.mlp.c_fc.bias");
                host_data<float>(bias)[100] = std::numeric_limits<float>::infinity();
                engine.set_parameter("h.2.mlp.c_fc.bias", bias);
                const at::Tensor before = engine.full_parameter("wte.weight");
                EXPECT_FALSE(engine.train_step({.step = 1, .lr = 1e-2}).finite());
                EXPECT_TRUE(before.equal(engine.full_parameter("wte.weight")));
                const int rank = pipeline == 2 ? tensor : 0;  // of the last stage
                EXPECT_EQ(engine.find_non_finite(1),
                          "rank " + std::to_string(rank) + ", unit h.2, forward, micro-batch 0");
              });
  }
}

TEST(Mesh, AFailureOfOneRankEndsAll) {
  std::atomic<int> failed = 0;
  EXPECT_THROW(run_world(on_mesh(small_options(), 2, 1, 2), Wire::kLocal,
                         [&](int rank, Engine& engine) {
                           (void)engine.train_step({.step = 1, .lr = 1e-3});
                           if (rank == 3) {
                             ++failed;
                             throw Error("rank 3 fails");
                           }
                           try {
                             (void)engine.train_step({.step = 2, .lr = 1e-3});
                           } catch (...) {
                             ++failed;
                             throw;
                           }
                         }),
               Error);
  EXPECT_EQ(failed, 4);
}

TEST(Mesh, NamesThatAreNoParametersAreRefusedOnAllRanks) {
  run_world(on_mesh(small_options(), 1, 1, 2), Wire::kLocal, [&](int, Engine& engine) {
    EXPECT_THROW((void)engine.full_parameter("nothing"), Error);
    EXPECT_THROW(engine.set_parameter("nothing", at::Tensor()), Error);
    EXPECT_EQ(engine.full_parameter("ln_f.weight").numel(), 32);
  });
}

}  // namespace
}  // namespace sluice::testing
