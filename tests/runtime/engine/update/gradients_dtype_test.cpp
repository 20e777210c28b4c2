// Gradients in bf16 (offload.gradients_dtype), off the device and on it: complete gradients are
// rounded once. Norm and update use the rounded values, with the same bits on every tier.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/cast.hpp"
#include "tests/runtime/engine/apart_device.hpp"
#include "tests/runtime/engine/tier_matrix.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice::testing {
namespace {

constexpr Tier kD = Tier::kDevice;
constexpr Tier kH = Tier::kHost;
constexpr Tier kN = Tier::kNvme;

EngineOptions rounding_options(int accumulation, const TemporaryFolder& folder) {
  EngineOptions options = tier_options(DType::kBFloat16, accumulation);
  options.zero.stage = 2;
  options.offload.nvme_path = {folder.path().string()};
  options.offload.gradients_dtype = DType::kBFloat16;
  options.train.accumulation_order = AccumulationOrder::kLayer;
  place(options, {kH, kD, kH, kD});
  return options;
}

// Of one data-parallel rank.
EngineOptions on_the_device(EngineOptions options) {
  options.offload.optimizer = options.offload.gradients = kD;
  options.dp = 1;
  return options;
}

float rounded(float value) { return float_of_bf16(bf16_bits(value)); }

EngineOptions only_biases(int accumulation, const TemporaryFolder& folder) {
  EngineOptions options = rounding_options(accumulation, folder);
  train_biases_alone(options);
  return options;
}

struct Both {
  WorldResult wide;    // gradients in fp32
  WorldResult narrow;  // in bf16
};

// One step.
Both train_both(EngineOptions options) {
  Both both;
  options.offload.gradients_dtype = DType::kFloat32;
  both.wide = train_world(options, 1, Wire::kLocal);
  options.offload.gradients_dtype = DType::kBFloat16;
  both.narrow = train_world(options, 1, Wire::kLocal);
  return both;
}

TEST(GradientsDtype, NormAndUpdateUseTheRoundedGradient) {
  const TemporaryFolder folder;
  EngineOptions options = only_biases(1, folder);
  options.offload.gradients_dtype = DType::kFloat32;
  const WorldResult wide = train_world(options, 1, Wire::kLocal);
  options.offload.gradients_dtype = DType::kBFloat16;
  for (const Tier tier : {kH, kN}) {
    options.offload.gradients = tier;
    const WorldResult narrow = train_world(options, 1, Wire::kLocal);
    double squares = 0;
    int changed = 0;
    for (const auto& [name, values] : narrow.weights) {
      if (!name.ends_with(".bias")) continue;
      const std::vector<float>& exact = wide.weights.at(name);
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(values[i], rounded(exact[i])) << name << " " << i;
        changed += values[i] != exact[i] ? 1 : 0;
        squares += static_cast<double>(values[i]) * values[i];
      }
    }
    EXPECT_GT(changed, 1000);
    EXPECT_NEAR(narrow.norms[0] / std::sqrt(squares), 1, 1e-12) << name_of_tier(tier);
    EXPECT_NE(narrow.norms[0], wide.norms[0]);
  }
}

// A sum that was rounded on the way would differ in many elements. The sum in fp32 has another
// order with fp32 gradients, which moves few elements to another bf16 value.
TEST(GradientsDtype, MicroBatchesAreSummedBeforeTheRounding) {
  const TemporaryFolder folder;
  for (const bool away : {true, false}) {
    EngineOptions options = only_biases(5, folder);
    if (!away) options = on_the_device(options);
    const auto [wide, narrow] = train_both(options);
    int all = 0;
    int differ = 0;
    for (const auto& [name, values] : narrow.weights) {
      if (!name.ends_with(".bias") || (!away && !name.starts_with("h."))) continue;
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(values[i], rounded(values[i])) << name << " " << i;
        ++all;
        differ += values[i] != rounded(wide.weights.at(name)[i]) ? 1 : 0;
      }
    }
    EXPECT_GT(all, 1000);
    EXPECT_LT(differ, all / 100) << (away ? "off the device" : "on it");
  }
}

// Blocks alone are rounded on the device.
TEST(GradientsDtype, OnTheDeviceBlocksAreRounded) {
  const TemporaryFolder folder;
  const auto [wide, narrow] = train_both(on_the_device(only_biases(1, folder)));
  double squares = 0;
  int changed = 0;
  int outside = 0;
  for (const auto& [name, values] : narrow.weights) {
    if (!name.ends_with(".bias")) continue;
    const bool block = name.starts_with("h.");
    const std::vector<float>& exact = wide.weights.at(name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], block ? rounded(exact[i]) : exact[i]) << name << " " << i;
      changed += values[i] != exact[i] ? 1 : 0;
      outside += values[i] != rounded(values[i]) ? 1 : 0;
      squares += static_cast<double>(values[i]) * values[i];
    }
  }
  EXPECT_GT(changed, 1000);
  EXPECT_GT(outside, 0);
  EXPECT_NEAR(narrow.norms[0] / std::sqrt(squares), 1, 1e-11);
  EXPECT_NE(narrow.norms[0], wide.norms[0]);
}

TEST(GradientsDtype, OnTheDeviceEveryStageHasTheSameBits) {
  const TemporaryFolder folder;
  for (const DType moments : {DType::kFloat32, DType::kBFloat16}) {
    for (const int accumulation : {1, 3}) {
      EngineOptions options = on_the_device(rounding_options(accumulation, folder));
      options.offload.states_dtype = moments;
      const WorldResult oracle = train_world(options, 6, Wire::kLocal);
      for (const int stage : {0, 1, 3}) {
        for (const bool recomputes : {false, true}) {
          options.zero.stage = stage;
          options.recompute.mode = recomputes ? RecomputeMode::kFull : RecomputeMode::kNone;
          expect_same_bits(train_world(options, 6, Wire::kLocal), oracle,
                           "stage " + std::to_string(stage) + ", " + std::to_string(accumulation));
        }
      }
    }
  }
}

struct Variant {
  int stage = 2;
  Placed placed;
  std::int64_t bucket_bytes = 0;
  bool speculates = false;
  bool apart = false;  // a device with an address space of its own
};

TEST(GradientsDtype, EveryPlacementHasTheSameBits) {
  const TemporaryFolder folder;
  const Variant variants[] = {{2, {kH, kD, kN, kD}, 16 * 1024},
                              {2, {kN, kD, kH, kD}, 100'000, true},
                              {2, {kN, kD, kN, kD}, 1 << 26},
                              {2, {kH, kD, kH, kD}, 4096, false, true},
                              {3, {kH, kH, kH, kH}, 16 * 1024, true},
                              {3, {kN, kN, kN, kN}, 100'000, true},
                              {3, {kN, kN, kN, kD}, 16 * 1024, true, true},
                              {3, {kH, kD, kN, kD}, 4096, true, true}};
  for (const int accumulation : {1, 3}) {
    const EngineOptions first = rounding_options(accumulation, folder);
    const WorldResult oracle = train_world(first, 8, Wire::kLocal);
    EngineOptions wide = first;
    wide.offload.gradients_dtype = DType::kFloat32;
    const WorldResult exact = train_world(wide, 8, Wire::kLocal);
    EXPECT_NE(oracle.losses, exact.losses);
    EXPECT_NEAR(oracle.losses.back() / exact.losses.back(), 1, 0.01);
    for (const Variant& variant : variants) {
      EngineOptions options = first;
      options.zero.stage = variant.stage;
      options.zero.bucket_bytes = variant.bucket_bytes;
      place(options, variant.placed);
      if (variant.speculates) options.offload.speculate = Speculation::kAuto;
      if (variant.apart) {
        options.tiers.make_copies = [] { return std::make_shared<ApartDevice>(); };
        options.tiers.bounce_bytes = 4096;
      }
      expect_same_bits(train_world(options, 8, Wire::kLocal), oracle,
                       describe(variant.placed, options));
    }
  }
}

// Early updates that are kept, and made again where the step is clipped.
TEST(GradientsDtype, SpeculativeUpdatesHaveTheSameBits) {
  constexpr int kMany = 24;
  const TemporaryFolder folder;
  EngineOptions options = rounding_options(2, folder);
  options.train.clip = 0;
  const std::vector<double> norms = train_world(options, kMany, Wire::kLocal).norms;
  // Kept by most steps: the largest norm after the first steps is clipped.
  options.train.clip = 0.999 * *std::max_element(norms.begin() + 6, norms.end());
  const WorldResult oracle = train_world(options, kMany, Wire::kLocal);
  options.offload.speculate = Speculation::kAuto;
  for (const Tier tier : {kH, kN}) {
    place(options, {tier, kD, tier, kD});
    expect_same_bits(train_world(options, kMany, Wire::kLocal), oracle, name_of_tier(tier));
    run_world(options, Wire::kLocal, [&](int, Engine& engine) {
      for (int step = 1; step <= kMany; ++step) {
        (void)engine.train_step({.step = step, .lr = options.optimizer.lr});
      }
      EXPECT_GT(engine.speculation_counts().kept, 0) << name_of_tier(tier);
      EXPECT_GT(engine.speculation_counts().redone, 0) << name_of_tier(tier);
    });
  }
}

// Ranks that hold the same parameters add their gradients on the host, in fp32.
TEST(GradientsDtype, GradientsOfReplicasStayFp32) {
  const TemporaryFolder folder;
  for (const bool pipeline : {false, true}) {
    EngineOptions options = rounding_options(1, folder);
    options.model.heads = 4;
    options.parallel.sequence = !pipeline;
    (pipeline ? options.parallel.pipeline : options.parallel.tensor) = 2;
    options.train.accumulation_order = AccumulationOrder::kMicro;
    const WorldResult oracle = train_world(options, 3, Wire::kLocal);
    options.zero.stage = 3;
    place(options, {kH, kH, kH, kD});
    expect_same_bits(train_world(options, 3, Wire::kLocal), oracle, describe_mesh(options));
    run_world(options, Wire::kLocal, [&](int, Engine& engine) {
      const StepShape& shape = engine.plan().shape;
      int narrow = 0;
      int wide = 0;
      for (const StateRow& row : engine.train_program().states.rows) {
        if (row.array != StateArray::kGradientShard) continue;
        const bool replicas = shape.groups[static_cast<std::size_t>(row.group)].add_replicas;
        EXPECT_EQ(row.dtype, replicas ? DType::kFloat32 : DType::kBFloat16);
        EXPECT_EQ(row.bytes(), row.elems * (replicas ? 4 : 2));
        ++(replicas ? wide : narrow);
      }
      EXPECT_GT(narrow, 0);
      EXPECT_GT(wide, 0);
    });
  }
}

}  // namespace
}  // namespace sluice::testing
