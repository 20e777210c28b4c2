// Invariant 1 over tiers: where states, parameters, gradients and activations live does not change
// a bit of losses, norms and weights.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/runtime/engine/tier_matrix.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"
#include "tests/slow_tests.hpp"

namespace sluice::testing {
namespace {

TEST(Tiers, EveryPlacementIsBitIdenticalSampled) { run_matrix(17); }

TEST(Tiers, EveryPlacementIsBitIdentical) {
  if (!slow_tests()) {
    GTEST_SKIP() << "the whole matrix runs with SLUICE_SLOW_TESTS=1";
  }
  run_matrix(1);
}

TEST(Tiers, AShareOnTheDeviceAndEveryRingAreBitIdentical) {
  const TemporaryFolder folder;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    EngineOptions options = tier_options(dtype, 1);
    options.model.hidden = 96;  // shards of more than a chunk, so that a share is not nothing
    const WorldResult oracle = train_world(options, kTierSteps, Wire::kLocal);
    options.offload.nvme_path = {folder.path().string()};
    options.zero.stage = 2;
    options.offload.optimizer = Tier::kNvme;
    options.offload.host_fraction = 0.6;
    for (const double device : {0.0, 0.4}) {
      options.offload.device_fraction = device;
      expect_same_bits(train_world(options, kTierSteps, Wire::kLocal), oracle,
                       "in part on the device, the host and NVMe");
    }
    for (const Tier rest : {Tier::kHost, Tier::kNvme}) {
      EngineOptions away = options;
      away.zero.stage = 3;
      away.offload.device_fraction = 0;
      away.offload.parameters = away.offload.gradients = rest;
      expect_same_bits(train_world(away, kTierSteps, Wire::kLocal), oracle,
                       "in part on the host, the rest on " + name_of_tier(rest));
    }
    options.offload.host_fraction = 0;
    for (const Tier tier : {Tier::kHost, Tier::kNvme}) {
      for (const double fraction : {0.0, 0.4, 1.0}) {
        for (const int chunks : {1, 3}) {
          options.offload.optimizer = tier;
          options.offload.device_fraction = fraction;
          options.offload.chunks = chunks;
          expect_same_bits(train_world(options, kTierSteps, Wire::kLocal), oracle,
                           name_of_tier(tier) + " fraction " + std::to_string(fraction));
        }
      }
    }
  }
}

// Rounded moments are not those of fp32, but the same in every stage, on every tier and however
// they are cut.
TEST(Tiers, NarrowMomentsTrainAndDoNotDependOnTheirTier) {
  const TemporaryFolder folder;
  EngineOptions options = tier_options(DType::kBFloat16, 1);
  options.zero.stage = 2;
  const WorldResult wide = train_world(options, 8, Wire::kLocal);
  options.offload.states_dtype = DType::kBFloat16;
  const WorldResult device = train_world(options, 8, Wire::kLocal);
  EXPECT_NE(device.losses, wide.losses);
  EXPECT_NEAR(device.losses.back() / wide.losses.back(), 1.0, 0.02);
  for (const int stage : {0, 1, 3}) {
    options.zero.stage = stage;
    expect_same_bits(train_world(options, 8, Wire::kLocal), device,
                     "device, stage " + std::to_string(stage));
  }
  options.offload.nvme_path = {folder.path().string()};
  for (const Tier tier : {Tier::kHost, Tier::kNvme}) {
    for (const double fraction : {0.0, 0.4}) {
      options.offload.optimizer = tier;
      options.offload.device_fraction = fraction;
      options.offload.chunk_bytes = tier == Tier::kNvme ? 1 << 20 : 64 << 10;
      expect_same_bits(train_world(options, 8, Wire::kLocal), device,
                       name_of_tier(tier) + ", stage 3, fraction " + std::to_string(fraction));
    }
  }
}

// The ring holds the first chunks' states from one program to the next.
TEST(Tiers, WhatComesBetweenStepsIsBitIdentical) {
  const TemporaryFolder folder;
  for (const int accumulation : {1, 2}) {
    EngineOptions options = tier_options(DType::kFloat16, accumulation);
    const WorldResult oracle = train_with_interruptions(options);
    options.offload.nvme_path = {folder.path().string()};
    options.offload.optimizer = Tier::kNvme;
    for (const int chunks : {1, 3, 100}) {
      for (const Tier gradients : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
        options.offload.chunks = chunks;
        options.offload.gradients = gradients;
        options.zero.stage = gradients == Tier::kHost ? 2 : 3;
        options.offload.host_fraction = chunks == 3 ? 0.5 : 0;
        options.train.accumulation_order =
            chunks == 3 ? AccumulationOrder::kLayer : AccumulationOrder::kMicro;
        expect_same_bits(
            train_with_interruptions(options), oracle,
            "ring of " + std::to_string(chunks) + ", gradients on " + name_of_tier(gradients));
      }
    }
  }
}

// Steps in bf16 with all between them that reads or writes master weights.
WorldResult train_with_reads(const EngineOptions& options) {
  const bool early = options.offload.speculate == Speculation::kAuto;
  std::vector<WorldResult> results(static_cast<std::size_t>(options.dp));
  run_world(options, Wire::kLocal, [&](int rank, Engine& engine) {
    WorldResult& mine = results[static_cast<std::size_t>(rank)];
    const std::string name = engine.plan().groups[1].tensors[0].spec.name;
    const std::vector<StateRow>& rows = engine.train_program().states.rows;
    const auto is_split = [](const StateRow& row) { return row.array == StateArray::kRemainder; };
    EXPECT_EQ(std::any_of(rows.begin(), rows.end(), is_split),
              options.offload.parameters == Tier::kHost ||
                  options.offload.optimizer == Tier::kDevice ||
                  options.offload.device_fraction > 0);
    for (std::int64_t step = 1; step <= 8; ++step) {
      const StepResult done = engine.train_step({.step = step, .lr = 1e-2});
      mine.losses.push_back(done.loss);
      mine.norms.push_back(done.grad_norm);
      if (step == 2) mine.losses.push_back(engine.evaluate(1));
      if (step == 3) engine.set_parameter(name, engine.full_parameter(name).mul(0.7));
    }
    if (early) {
      EXPECT_GT(engine.tiers()->updated_early(), 0);
    }
    note_weights(engine, mine);
  });
  return results[0];
}

// Master weights are remainders beside parameters on the device, and on the host, where they are
// updated early or late. The oracle keeps them whole, on the host.
TEST(Tiers, SplitMasterWeightsAreBitIdentical) {
  const TemporaryFolder folder;
  for (const OptimizerType type : {OptimizerType::kAdamW, OptimizerType::kLion}) {
    EngineOptions options = tier_options(DType::kBFloat16, 2);
    options.optimizer.type = type;
    options.train.clip = 1e3;  // a step is not clipped, so early updates are kept
    options.zero.stage = 1;
    place(options, {Tier::kHost, Tier::kDevice, Tier::kDevice, Tier::kDevice});
    options.offload.speculate = Speculation::kNever;
    const WorldResult oracle = train_with_reads(options);
    options.offload.device_fraction = 0.5;
    expect_same_bits(train_with_reads(options), oracle, "a half on the device");
    options.offload.device_fraction = 0;
    place(options, {Tier::kDevice, Tier::kDevice, Tier::kDevice, Tier::kDevice});
    for (const int stage : {0, 1, 2, 3}) {
      options.zero.stage = stage;
      expect_same_bits(train_with_reads(options), oracle, "stage " + std::to_string(stage));
    }
    options.offload.nvme_path = {folder.path().string()};
    for (const Tier tier : {Tier::kHost, Tier::kNvme}) {
      for (const Tier gradients : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
        for (const bool early : {false, true}) {
          place(options, {tier, Tier::kHost, gradients, Tier::kDevice});
          options.offload.speculate = early ? Speculation::kAuto : Speculation::kNever;
          expect_same_bits(train_with_reads(options), oracle,
                           name_of_tier(tier) + ", gradients on " + name_of_tier(gradients) +
                               (early ? ", early" : ""));
        }
      }
    }
  }
}

TEST(Tiers, BytesOfEachTierAreThePlans) {
  const TemporaryFolder folder;
  EngineOptions options = tier_options(DType::kBFloat16, 3);
  options.zero.stage = 3;
  options.offload.nvme_path = {folder.path().string()};
  for (const Tier tier : {Tier::kHost, Tier::kNvme}) {
    place(options, {tier, tier, tier, tier});
    run_world(options, Wire::kLocal, [&](int, Engine& engine) {
      (void)engine.train_step({.step = 1, .lr = 1e-3});
      (void)engine.train_step({.step = 2, .lr = 1e-3});
      const auto planned = [&](Tier t) {
        const Program& program = engine.train_program();
        const std::int64_t itself = t == Tier::kHost ? host_bytes_of(program) : 0;
        return static_cast<double>(add_up(program, t).peak() + itself);
      };
      EXPECT_EQ(static_cast<double>(engine.tiers()->nvme_bytes()), planned(Tier::kNvme));
      if (tier == Tier::kHost) {
        EXPECT_NEAR(static_cast<double>(engine.tiers()->host_peak_bytes()) / planned(Tier::kHost),
                    1.0, 0.02);
      }
    });
  }
}

}  // namespace
}  // namespace sluice::testing
