// Packed rows against the same documents in rows of their own: loss, gradients, weights, at any
// micro-batch and mesh; and what changes no bit.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "tests/runtime/engine/packed/packed_batches.hpp"
#include "tests/runtime/engine/tier_matrix.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice::testing {
namespace {

WorldResult packed_run(const EngineOptions& options, int steps) {
  return train_world(options, steps, Wire::kLocal, packed_rows);
}

WorldResult unpacked_run(EngineOptions options, int steps) {
  options.model.packed_rows = false;
  options.train.micro_batch = 3;
  options.train.global_batch = packed_documents();
  return train_world(options, steps, Wire::kLocal, unpacked_rows);
}

void expect_equal_runs(const WorldResult& a, const WorldResult& b, double tolerance,
                       const std::string& what) {
  ASSERT_EQ(a.losses.size(), b.losses.size()) << what;
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_NEAR(a.losses[i] / b.losses[i], 1.0, tolerance) << what << ", step " << i + 1;
    EXPECT_NEAR(a.norms[i] / b.norms[i], 1.0, 10 * tolerance) << what << ", step " << i + 1;
  }
  EXPECT_NEAR(a.eval_loss / b.eval_loss, 1.0, tolerance) << what;
}

// SGD: a weight moves by the learning rate times its gradient.
TEST(PackedRows, HaveTheLossAndGradientsOfTheirDocuments) {
  for (const bool llama : {false, true}) {
    for (const bool explicit_units : {true, false}) {
      EngineOptions options = packed_world(llama);
      options.model.explicit_units = explicit_units;
      options.optimizer.type = OptimizerType::kSgd;
      options.optimizer.weight_decay = 0;
      options.optimizer.lr = 1;
      options.train.clip = 0;
      const std::string what =
          std::string(llama ? "mistral" : "gpt2") + (explicit_units ? " explicit" : " autograd");
      const WorldResult before = packed_run(options, 0);
      const WorldResult packed = packed_run(options, 1), apart = unpacked_run(options, 1);
      EXPECT_NEAR(packed.losses[0] / apart.losses[0], 1.0, 1e-6) << what;
      EXPECT_NEAR(packed.norms[0] / apart.norms[0], 1.0, 1e-6) << what;
      for (const auto& [name, first] : before.weights) {
        double difference = 0, size = 0;
        for (std::size_t i = 0; i < first.size(); ++i) {
          const double moved = packed.weights.at(name)[i] - first[i];
          difference += std::pow(moved - (apart.weights.at(name)[i] - first[i]), 2);
          size += moved * moved;
        }
        // Weights of size 1 are rounded at 6e-8.
        EXPECT_LT(std::sqrt(difference), 1e-6 * packed.norms[0] + 1e-6 * std::sqrt(size) +
                                             1e-7 * std::sqrt(static_cast<double>(first.size())))
            << what << " " << name;
      }
    }
  }
}

TEST(PackedRows, FiftyStepsHaveTheLossesOfUnpackedOnes) {
  for (const bool llama : {false, true}) {
    const EngineOptions options = packed_world(llama);
    const WorldResult packed = packed_run(options, 50);
    EXPECT_LT(packed.losses.back(), 0.9 * packed.losses.front());
    expect_equal_runs(packed, unpacked_run(options, 50), 1e-5, llama ? "mistral" : "gpt2");
  }
}

TEST(PackedRows, AnySplitOfTheBatchHasTheSameLoss) {
  for (const bool llama : {false, true}) {
    EngineOptions options = packed_world(llama);
    const WorldResult one = unpacked_run(options, 3);
    for (const int dp : {1, 2, 3}) {
      for (const std::int64_t micro_batch : {1, 2, 3}) {
        if (kPackedRows % (dp * micro_batch) != 0) continue;
        options.dp = dp;
        options.train.micro_batch = micro_batch;
        options.zero.stage = static_cast<int>(dp + micro_batch) % 4;
        expect_equal_runs(
            packed_run(options, 3), one, 2e-6,
            "dp " + std::to_string(dp) + " micro-batch " + std::to_string(micro_batch));
      }
    }
  }
}

TEST(PackedRows, StagesRecomputationAndOrdersAreBitIdentical) {
  for (const bool llama : {false, true}) {
    EngineOptions options = packed_world(llama);
    options.dp = 2;
    const WorldResult oracle = packed_run(options, 3);
    for (const RecomputeMode mode :
         {RecomputeMode::kNone, RecomputeMode::kSelective, RecomputeMode::kFull}) {
      options.recompute.mode = mode;
      options.model.recompute_attention = mode == RecomputeMode::kSelective;
      for (const int stage : {0, 1, 2, 3}) {
        options.zero.stage = stage;
        options.train.accumulation_order =
            stage == 2 ? AccumulationOrder::kLayer : AccumulationOrder::kMicro;
        expect_same_bits(
            packed_run(options, 3), oracle,
            "stage " + std::to_string(stage) + " mode " + std::to_string(static_cast<int>(mode)));
      }
    }
  }
}

TEST(PackedRows, TiersAreBitIdentical) {
  const TemporaryFolder folder;
  EngineOptions options = packed_world(true);
  options.dp = 2;
  options.offload.chunk_bytes = 16 * 1024;
  options.offload.nvme_path = {folder.path().string()};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    options.train.dtype = dtype;
    options.zero.stage = 1;
    place(options, {});
    const WorldResult oracle = packed_run(options, 3);
    for (const Tier tier : {Tier::kHost, Tier::kNvme}) {
      for (const Placed& placed : {Placed{.optimizer = tier}, Placed{.activations = tier},
                                   Placed{tier, tier, tier, tier}}) {
        options.zero.stage = placed.parameters == Tier::kDevice ? 1 : 3;
        place(options, placed);
        expect_same_bits(packed_run(options, 3), oracle, describe(placed, options));
      }
    }
  }
}

TEST(PackedRows, MeshesTrainAsOneRankDoes) {
  struct Case {
    int tensor, data, pipeline;
    bool sequence = false;
    PipelineSchedule schedule = PipelineSchedule::k1f1b;
    int virtual_stages = 1;
  };
  const Case cases[] = {{2, 1, 1},
                        {2, 1, 1, true},
                        {1, 2, 2},
                        {1, 1, 2, false, PipelineSchedule::kZeroBubble},
                        {1, 1, 3},  // a stage between the ends loads no batch
                        {1, 1, 2, false, PipelineSchedule::kInterleaved, 2},
                        {2, 1, 2, true}};
  for (const bool llama : {false, true}) {
    const WorldResult one = unpacked_run(packed_world(llama), 3);
    for (const Case& c : cases) {
      EngineOptions options = packed_world(llama);
      options.parallel.tensor = c.tensor;
      options.dp = c.data;
      options.parallel.pipeline = c.pipeline;
      options.parallel.sequence = c.sequence;
      options.parallel.schedule = c.schedule;
      options.parallel.virtual_stages = c.virtual_stages;
      options.recompute.mode = c.data == 2 ? RecomputeMode::kFull : RecomputeMode::kNone;
      expect_equal_runs(packed_run(options, 3), one, 2e-5, describe_mesh(options));
    }
  }
}

// Rows of whole documents, all of them learned: the number of targets is that of tokens, and the
// arithmetic of plain rows stays, bit by bit.
TEST(PackedRows, ThatAreWholeAreAsPlainRows) {
  EngineOptions options = packed_world(false);
  options.dp = 2;
  const RowSource plain = formula_rows(kPackedSeq, kPackedWords);
  const RowSource counted = [&](std::int64_t index, std::int64_t first, std::int64_t rows,
                                SampleRows& out) {
    plain(index, first, rows, out);
    out.cu_seqlens.assign(static_cast<std::size_t>(rows), {0, kPackedSeq});
    out.learned_targets = kPackedRows * kPackedSeq;
  };
  const WorldResult packed = train_world(options, 3, Wire::kLocal, counted);
  options.model.packed_rows = false;
  expect_same_bits(packed, train_world(options, 3, Wire::kLocal, plain), "whole rows");
}

TEST(PackedRows, AModelOfPlainRowsRefusesThem) {
  EngineOptions options = packed_world(false);
  options.model.packed_rows = false;
  try {
    (void)packed_run(options, 1);
    FAIL() << "documents were passed over";
  } catch (const Error& error) {
    EXPECT_NE(error_chain(error).find(
                  "rows hold several documents, but the model was made for rows of one; set "
                  "ModelOptions::packed_rows"),
              std::string::npos)
        << error_chain(error);
  }
}

}  // namespace
}  // namespace sluice::testing
