// Invariant 1 of the design: how a step is laid out does not change its numbers. On one mesh, bit
// for bit; across meshes within fp32 rounding.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/runtime/engine/world.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice::testing {
namespace {

struct Mesh {
  int dp;
  int accumulation;
  DType dtype;
  MatmulType matmul = MatmulType::kNative;
};

class EqualityMatrix : public ::testing::TestWithParam<Mesh> {};

// Stage 0-3 x recompute x order of accumulation on one mesh.
TEST_P(EqualityMatrix, StagesRecomputationAndOrdersAreBitIdentical) {
  EngineOptions options = tiny_options();
  options.dp = GetParam().dp;
  options.train.dtype = GetParam().dtype;
  options.model.matmul = GetParam().matmul;
  options.train.global_batch = options.dp * options.train.micro_batch * GetParam().accumulation;
  const WorldResult oracle = train_world(options, 4, Wire::kGloo);
  EXPECT_LT(oracle.losses.back(), oracle.losses.front());
  for (int stage = 0; stage <= 3; ++stage) {
    for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kFull}) {
      for (const AccumulationOrder order : {AccumulationOrder::kMicro, AccumulationOrder::kLayer}) {
        const bool layer = order == AccumulationOrder::kLayer;
        if (layer && GetParam().accumulation == 1) continue;
        options.zero.stage = stage;
        options.recompute.mode = mode;
        options.train.accumulation_order = order;
        expect_same_bits(train_world(options, 4, Wire::kGloo), oracle,
                         "stage " + std::to_string(stage) + " recompute " +
                             (mode == RecomputeMode::kFull ? "full" : "none") +
                             (layer ? " layer-major" : ""));
      }
    }
  }
}

std::vector<Mesh> meshes() {
  std::vector<Mesh> all;
  for (const int dp : {1, 2, 3, 4}) {
    for (const int accumulation : {1, 4}) {
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
        all.push_back({dp, accumulation, dtype});
      }
      all.push_back({dp, accumulation, DType::kBFloat16, MatmulType::kFp8});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Meshes, EqualityMatrix, ::testing::ValuesIn(meshes()),
                         [](const ::testing::TestParamInfo<Mesh>& info) {
                           return "dp" + std::to_string(info.param.dp) + "_accumulation" +
                                  std::to_string(info.param.accumulation) + "_" +
                                  std::string(name_of(info.param.dtype)) +
                                  (info.param.matmul == MatmulType::kFp8 ? "_fp8" : "");
                         });

// The oracle itself: what a rank of its own computes from the same global batch.
TEST(Equality, RankCountsAgreeAtTheSameGlobalBatch) {
  EngineOptions options = tiny_options();
  options.train.global_batch = 12;
  options.train.micro_batch = 12;
  const WorldResult one = train_world(options, 20, Wire::kGloo);
  for (const int dp : {2, 3, 4}) {
    options.dp = dp;
    options.train.micro_batch = 12 / dp;
    for (const int stage : {0, 1, 2, 3}) {
      options.zero.stage = stage;
      const WorldResult many = train_world(options, 20, Wire::kGloo);
      for (std::size_t step = 0; step < one.losses.size(); ++step) {
        EXPECT_NEAR(many.losses[step] / one.losses[step], 1.0, 1e-5)
            << "dp " << dp << " stage " << stage << " step " << step + 1;
      }
    }
  }
}

TEST(Equality, NeitherBucketsNorPrefetchNorResidencyNorTheWireChangeABit) {
  EngineOptions options = tiny_options();
  options.dp = 2;
  options.zero.stage = 3;
  options.train.global_batch = 8;
  const WorldResult oracle = train_world(options, 3, Wire::kGloo);
  for (const std::int64_t bucket : {1024, 100'000'000}) {
    for (const int prefetch : {0, 2, 100}) {
      for (const std::int64_t persist : {0, 1000, 100'000'000}) {
        options.zero.bucket_bytes = bucket;
        options.zero.prefetch_units = prefetch;
        options.zero.persist_below = persist;
        expect_same_bits(train_world(options, 3, Wire::kLocal), oracle,
                         "bucket " + std::to_string(bucket) + " prefetch " +
                             std::to_string(prefetch) + " persist " + std::to_string(persist));
      }
    }
  }
}

// Of fp16: 7 layers, 509 words, 33 tokens, and a frozen block.
EngineOptions rounding_options(int dp) {
  EngineOptions options = tiny_options();
  options.model = {.layers = 7, .hidden = 20, .heads = 5, .vocab = 509, .seq = 33};
  options.model.freeze = {"h.2"};
  options.dp = dp;
  options.train.dtype = DType::kFloat16;
  options.train.global_batch = 2 * dp * options.train.micro_batch;
  options.zero.stage = 3;
  return options;
}

std::int64_t bytes_between_steps(Engine& engine, Tag tag) {
  return engine.train_program().states.bytes(Tier::kDevice, tag);
}

TEST(Equality, GathersThatRoundMasterWeightsChangeNoBit) {
  for (const int dp : {1, 2, 3}) {
    EngineOptions options = rounding_options(dp);
    const WorldResult oracle = train_world(options, 3, Wire::kLocal);
    options.zero.rounds_from = 1;
    for (const std::int64_t persist : {0, 1000}) {
      for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kFull}) {
        for (const auto order : {AccumulationOrder::kMicro, AccumulationOrder::kLayer}) {
          options.zero.persist_below = persist;
          options.recompute.mode = mode;
          options.train.accumulation_order = order;
          expect_same_bits(train_world(options, 3, Wire::kLocal), oracle,
                           std::to_string(dp) + " ranks, persist " + std::to_string(persist));
        }
      }
    }
  }
}

// A rank alone keeps small groups.
TEST(Equality, GathersThatRoundMasterWeightsLeaveNoShardOfWhatIsTrained) {
  constexpr std::int64_t kAboveAll = 1 << 30;
  for (const int dp : {1, 2, 3}) {
    EngineOptions options = rounding_options(dp);
    options.model.freeze = {};
    for (const std::int64_t from : {std::int64_t{0}, std::int64_t{1}, kAboveAll}) {
      const bool keeps = from == 0 || (from == kAboveAll && dp == 1);
      if (from > 0) options.zero.rounds_from = from;
      run_world(options, Wire::kLocal, [&](int, Engine& engine) {
        const std::int64_t master = bytes_between_steps(engine, Tag::kMaster);
        EXPECT_EQ(bytes_between_steps(engine, Tag::kParameters), keeps ? master / 2 : 0);
      });
    }
  }
}

// A thrown away step leaves the master weights, and with them the parameters.
TEST(Equality, GathersThatRoundMasterWeightsAfterAnOverflow) {
  EngineOptions options = rounding_options(2);
  WorldResult results[2];
  for (const bool rounds : {false, true}) {
    if (rounds) options.zero.rounds_from = 1;
    run_world(options, Wire::kLocal, [&](int rank, Engine& engine) {
      WorldResult own;
      ScaledSteps step(engine, own);
      step(1, ScaledSteps::kScale);
      step(2, ScaledSteps::kTooMuch);
      step(3, ScaledSteps::kScale);
      own.eval_loss = engine.evaluate(1);
      note_weights(engine, own);
      if (rank == 0) results[rounds ? 1 : 0] = std::move(own);
    });
  }
  expect_same_bits(results[1], results[0], "after an overflow");
}

TEST(Equality, DropoutIsReplayedByRecomputationAndTheSameForEveryStage) {
  EngineOptions options = tiny_options();
  options.model.dropout = 0.1;
  options.dp = 2;
  options.train.global_batch = 8;
  const WorldResult oracle = train_world(options, 3, Wire::kLocal);
  for (const int stage : {1, 2, 3}) {
    options.zero.stage = stage;
    options.recompute.mode = RecomputeMode::kFull;
    expect_same_bits(train_world(options, 3, Wire::kLocal), oracle,
                     "stage " + std::to_string(stage));
  }
  EngineOptions plain = options;
  plain.model.dropout = 0;
  EXPECT_NE(train_world(plain, 3, Wire::kLocal).losses, oracle.losses);
}

// Every way of 16-bit products trains, and nearly alike.
TEST(Equality, ProductsIn8BitsTrainNearlyAlike) {
  EngineOptions options = tiny_options();
  options.dp = 2;
  options.train.dtype = DType::kBFloat16;
  options.train.global_batch = 8;
  const WorldResult native = train_world(options, 20, Wire::kLocal);
  options.model.matmul = MatmulType::kFp8;
  const WorldResult ours = train_world(options, 20, Wire::kLocal);
  EXPECT_NE(ours.losses, native.losses);
  for (std::size_t i = 0; i < native.losses.size(); ++i) {
    EXPECT_NEAR(ours.losses[i] / native.losses[i], 1.0, 2e-2) << "step " << i + 1;
  }
}

// Each has its bits, whatever the stage.
TEST(Equality, ProductsOf16BitsInFp32) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    EngineOptions options = tiny_options();
    options.dp = 2;
    options.train.dtype = dtype;
    options.train.global_batch = 8;
    const WorldResult native = train_world(options, 4, Wire::kLocal);
    options.model.matmul = MatmulType::kFp32;
    const WorldResult oracle = train_world(options, 4, Wire::kLocal);
    EXPECT_LT(oracle.losses.back(), oracle.losses.front());
    EXPECT_NE(oracle.losses, native.losses);
    for (std::size_t i = 0; i < native.losses.size(); ++i) {
      EXPECT_NEAR(oracle.losses[i] / native.losses[i], 1.0, 1e-2);
    }
    for (const int stage : {0, 1, 2, 3}) {
      for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kFull}) {
        options.zero.stage = stage;
        options.recompute.mode = mode;
        expect_same_bits(train_world(options, 4, Wire::kLocal), oracle,
                         "stage " + std::to_string(stage));
      }
    }
  }
}

// A mask belongs to a sample, not to a rank or a micro-batch.
TEST(Equality, DropoutDoesNotDependOnTheSplitOfTheBatch) {
  EngineOptions options = tiny_options();
  options.model.dropout = 0.2;
  options.train.global_batch = 8;
  options.train.micro_batch = 8;
  const WorldResult one = train_world(options, 5, Wire::kLocal);
  options.dp = 2;
  options.zero.stage = 2;
  options.train.micro_batch = 2;
  const WorldResult split = train_world(options, 5, Wire::kLocal);
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(split.losses[i] / one.losses[i], 1.0, 1e-5);
  }
}

TEST(Equality, ReducingOnceAStepAgreesWithinRounding) {
  EngineOptions options = tiny_options();
  options.dp = 2;
  options.train.global_batch = 16;
  for (const int stage : {0, 1}) {
    options.zero.stage = stage;
    options.zero.reduce_every = ReduceEvery::kMicroBatch;
    const WorldResult each = train_world(options, 10, Wire::kLocal);
    options.zero.reduce_every = ReduceEvery::kStep;
    const WorldResult once = train_world(options, 10, Wire::kLocal);
    for (std::size_t i = 0; i < each.losses.size(); ++i) {
      EXPECT_NEAR(once.losses[i] / each.losses[i], 1.0, 1e-5) << "stage " << stage;
    }
  }
}

// In layer order stages 2 and 3 reduce once a step too, with the bits of the other stages. A tied
// table's gradient is one stream then, from the loss head to the embedding.
TEST(Equality, StagesThatReduceOnceAStepInLayerOrderAreBitIdentical) {
  const TemporaryFolder folder;
  for (const bool tied : {true, false}) {
    EngineOptions options = tiny_options();
    options.dp = 2;
    options.model.tie_embeddings = tied;
    options.train.global_batch = 16;
    options.train.accumulation_order = AccumulationOrder::kLayer;
    options.zero.reduce_every = ReduceEvery::kStep;
    options.generate_positions = 8;  // its programs have one micro-batch, in no order
    options.zero.stage = 0;
    const WorldResult oracle = train_world(options, 5, Wire::kLocal);
    options.offload.nvme_path = {folder.path().string()};
    for (const int stage : {1, 2, 3}) {
      options.zero.stage = stage;
      const std::string what = "stage " + std::to_string(stage);
      options.offload.optimizer = options.offload.gradients = Tier::kDevice;
      expect_same_bits(train_world(options, 5, Wire::kLocal), oracle, what);
      for (const Tier gradients : {Tier::kHost, Tier::kNvme}) {
        if (stage == 1) continue;
        options.offload.optimizer = Tier::kHost;
        options.offload.gradients = gradients;
        expect_same_bits(train_world(options, 5, Wire::kLocal), oracle,
                         what + (gradients == Tier::kHost ? ", on the host" : ", on NVMe"));
      }
    }
  }
}

TEST(Equality, UntiedHeadAndOddSizes) {
  EngineOptions options = tiny_options();
  options.model = {.layers = 7, .hidden = 20, .heads = 5, .vocab = 509, .seq = 33};
  options.model.tie_embeddings = false;
  options.dp = 3;
  const WorldResult oracle = train_world(options, 3, Wire::kLocal);
  for (const int stage : {1, 2, 3}) {
    options.zero.stage = stage;
    expect_same_bits(train_world(options, 3, Wire::kLocal), oracle,
                     "stage " + std::to_string(stage));
  }
}

TEST(Equality, InitialWeightsDependOnNeitherStageNorRanks) {
  EngineOptions options = tiny_options();
  const WorldResult one = train_world(options, 0, Wire::kLocal);
  for (const int dp : {2, 3}) {
    options.dp = dp;
    options.zero.stage = 3;
    const WorldResult many = train_world(options, 0, Wire::kLocal);
    for (const auto& [name, values] : one.weights) {
      EXPECT_TRUE(values == many.weights.at(name)) << name << " on " << dp << " ranks";
    }
  }
}

TEST(Equality,
     DataTypesDiffer) {  // the matrix above must not compare a dtype with itself by mistake
  EngineOptions options = tiny_options();
  const WorldResult wide = train_world(options, 2, Wire::kLocal);
  options.train.dtype = DType::kBFloat16;
  const WorldResult narrow = train_world(options, 2, Wire::kLocal);
  EXPECT_NE(wide.losses, narrow.losses);
  EXPECT_NEAR(narrow.losses[0] / wide.losses[0], 1.0, 2e-2);
}

}  // namespace
}  // namespace sluice::testing
