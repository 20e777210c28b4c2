// Gradients that ranks send in bf16 (zero.reduce_dtype): each rank's are rounded once, and the sum
// over the ranks is fp32.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cpu/cast.hpp"
#include "kernels/cpu/softmax_cross_entropy.hpp"
#include "tests/runtime/engine/tier_matrix.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice::testing {
namespace {

// Of three ranks, and sizes that leave padding.
EngineOptions sending_bf16(int accumulation) {
  EngineOptions options = tiny_options();
  options.model = {.layers = 3, .hidden = 20, .heads = 5, .vocab = 131, .seq = 17};
  options.dp = 3;
  options.zero.stage = 2;
  options.zero.bucket_bytes = 4096;
  options.zero.reduce_dtype = DType::kBFloat16;
  options.train.dtype = DType::kBFloat16;
  options.train.global_batch = options.dp * options.train.micro_batch * accumulation;
  return options;
}

constexpr int kAllRanks = -1;

// Rows of one rank alone count; the other ranks' gradients are 0.
RowSource rows_of(const EngineOptions& options, int rank) {
  const RowSource all = formula_rows(options.model.seq, options.model.vocab);
  return [=](std::int64_t index, std::int64_t first, std::int64_t rows, SampleRows& out) {
    all(index, first, rows, out);
    out.learned_targets = options.train.global_batch * options.model.seq;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t its = (first + r) / options.train.micro_batch % options.dp;
      if (rank == kAllRanks || rank == its) continue;
      const auto begin = out.targets.begin() + r * options.model.seq;
      std::fill(begin, begin + options.model.seq, kIgnoreTarget);
    }
  };
}

float rounded_to_bf16(float value) { return float_of_bf16(bf16_bits(value)); }

// In fp32, because an update in bf16 moves weights that are ties of their rounding.
TEST(ReduceDtype, TheSumIsOfRoundedGradientsAndInFp32) {
  EngineOptions options = sending_bf16(1);
  options.train.dtype = DType::kFloat32;
  train_biases_alone(options);
  const WorldResult sum = train_world(options, 1, Wire::kLocal, rows_of(options, kAllRanks));
  options.zero.reduce_dtype = DType::kFloat32;
  std::vector<WorldResult> of_rank;
  for (int r = 0; r < options.dp; ++r) {
    of_rank.push_back(train_world(options, 1, Wire::kLocal, rows_of(options, r)));
  }
  int changed = 0;
  int all = 0;
  for (const auto& [name, values] : sum.weights) {
    if (!name.ends_with(".bias")) continue;
    for (std::size_t i = 0; i < values.size(); ++i) {
      float expected = 0;
      float exact = 0;
      for (const WorldResult& one : of_rank) {
        expected += rounded_to_bf16(one.weights.at(name)[i]);
        exact += one.weights.at(name)[i];
      }
      ASSERT_EQ(values[i], expected) << name << " " << i;
      changed += expected != exact ? 1 : 0;
      ++all;
    }
  }
  EXPECT_GT(all, 500);
  EXPECT_GT(changed, all / 2);
}

TEST(ReduceDtype, EveryLayoutHasTheSameBits) {
  const TemporaryFolder folder;
  for (const int accumulation : {1, 3}) {
    EngineOptions options = sending_bf16(accumulation);
    options.offload.nvme_path = {folder.path().string()};
    options.offload.chunk_bytes = 16 * 1024;
    const WorldResult oracle = train_world(options, 5, Wire::kGloo);
    EXPECT_LT(oracle.losses.back(), oracle.losses.front());
    for (const int stage : {0, 1, 2, 3}) {
      for (const bool layer : {false, true}) {
        options.zero.stage = stage;
        options.zero.bucket_bytes = layer ? 100'000 : 512;
        options.train.accumulation_order =
            layer ? AccumulationOrder::kLayer : AccumulationOrder::kMicro;
        options.recompute.mode = layer ? RecomputeMode::kFull : RecomputeMode::kNone;
        const Wire wire = layer ? Wire::kGloo : Wire::kLocal;
        place(options, {});
        expect_same_bits(train_world(options, 5, wire), oracle, describe({}, options));
        if (stage < 2) continue;
        const Placed placed{Tier::kNvme, Tier::kDevice, layer ? Tier::kNvme : Tier::kHost};
        place(options, placed);
        expect_same_bits(train_world(options, 5, wire), oracle, describe(placed, options));
      }
    }
  }
}

TEST(ReduceDtype, ARankAloneSendsNothingAndRoundsNothing) {
  EngineOptions options = sending_bf16(2);
  options.dp = 1;
  const WorldResult narrow = train_world(options, 3, Wire::kLocal);
  options.zero.reduce_dtype = DType::kFloat32;
  expect_same_bits(train_world(options, 3, Wire::kLocal), narrow, "one rank");
}

}  // namespace
}  // namespace sluice::testing
