// Invariant 1 over tiers: where states, parameters, gradients and activations live does not change
// a bit of losses, norms and weights.
#include <gtest/gtest.h>

#include <cstdlib>

#include "runtime/model/tensor_view.hpp"
#include "tests/runtime/engine/world.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice::testing {
namespace {

constexpr int kSteps = 5;

std::string name_of_tier(Tier tier) {
  return tier == Tier::kDevice ? "device" : tier == Tier::kHost ? "host" : "nvme";
}

EngineOptions tier_options(DType dtype, int accumulation) {
  EngineOptions options = tiny_options();
  options.model = {.layers = 4, .hidden = 48, .heads = 3, .vocab = 131, .seq = 16};
  options.dp = 2;
  options.train.dtype = dtype;
  options.train.global_batch = options.dp * options.train.micro_batch * accumulation;
  options.offload.chunk_bytes = 16 * 1024;  // several chunks a group
  options.offload.chunks = 2;
  return options;
}

struct Placed {
  Tier optimizer = Tier::kDevice;
  Tier parameters = Tier::kDevice;
  Tier gradients = Tier::kDevice;
  Tier activations = Tier::kDevice;
};

std::string describe(const Placed& p, const EngineOptions& o) {
  return "stage " + std::to_string(o.zero.stage) + ", optimizer " + name_of_tier(p.optimizer) +
         ", parameters " + name_of_tier(p.parameters) + ", gradients " + name_of_tier(p.gradients) +
         ", activations " + name_of_tier(p.activations) +
         (o.train.accumulation_order == AccumulationOrder::kLayer ? ", layer-major" : "") +
         (o.recompute.mode == RecomputeMode::kFull ? ", recompute" : "") + ", accumulation " +
         std::to_string(o.train.global_batch / (o.dp * o.train.micro_batch)) + ", " +
         std::string(name_of(o.train.dtype));
}

bool has_meaning(const Placed& p, int stage) {
  if (p.parameters != Tier::kDevice && (stage < 3 || p.optimizer == Tier::kDevice)) return false;
  return p.gradients == Tier::kDevice || (stage >= 2 && p.optimizer != Tier::kDevice);
}

void place(EngineOptions& options, const Placed& p) {
  options.offload.optimizer = p.optimizer;
  options.offload.parameters = p.parameters;
  options.offload.gradients = p.gradients;
  options.offload.activations = p.activations;
}

// Every placement that has a meaning; `every`: one of so many of them runs.
void run_matrix(int every) {
  const TemporaryFolder folder;
  const Tier tiers[] = {Tier::kDevice, Tier::kHost, Tier::kNvme};
  int count = 0;
  int ran = 0;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const int accumulation : {1, 3}) {
      EngineOptions options = tier_options(dtype, accumulation);
      const WorldResult oracle = train_world(options, kSteps, Wire::kLocal);
      options.offload.nvme_path = {folder.path().string()};
      for (int stage = 0; stage <= 3; ++stage) {
        for (const bool layer : {false, true}) {
          if (layer && accumulation == 1) continue;
          for (int i = 0; i < 81; ++i) {
            const Placed p{tiers[i % 3], tiers[i / 3 % 3], tiers[i / 9 % 3], tiers[i / 27]};
            if (i == 0 || !has_meaning(p, stage) || count++ % every != 0) continue;
            options.zero.stage = stage;
            options.train.accumulation_order =
                layer ? AccumulationOrder::kLayer : AccumulationOrder::kMicro;
            place(options, p);
            options.recompute.mode = i % 2 == 0 ? RecomputeMode::kNone : RecomputeMode::kFull;
            const std::string what = describe(p, options);
            SCOPED_TRACE(what);
            expect_same_bits(train_world(options, kSteps, Wire::kLocal), oracle, what);
            ++ran;
            if (::testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
  EXPECT_GE(ran, count / every);
}

TEST(Tiers, EveryPlacementIsBitIdenticalSampled) { run_matrix(17); }

TEST(Tiers, EveryPlacementIsBitIdentical) {
  if (std::getenv("SLUICE_SLOW_TESTS") == nullptr) {
    GTEST_SKIP() << "the whole matrix runs with SLUICE_SLOW_TESTS=1";
  }
  run_matrix(1);
}

TEST(Tiers, AShareOnTheDeviceAndEveryRingAreBitIdentical) {
  const TemporaryFolder folder;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    EngineOptions options = tier_options(dtype, 1);
    options.model.hidden = 96;  // shards of more than a chunk, so that a share is not nothing
    const WorldResult oracle = train_world(options, kSteps, Wire::kLocal);
    options.offload.nvme_path = {folder.path().string()};
    options.zero.stage = 2;
    for (const Tier tier : {Tier::kHost, Tier::kNvme}) {
      for (const double fraction : {0.0, 0.4, 1.0}) {
        for (const int chunks : {1, 3}) {
          options.offload.optimizer = tier;
          options.offload.device_fraction = fraction;
          options.offload.chunks = chunks;
          expect_same_bits(train_world(options, kSteps, Wire::kLocal), oracle,
                           name_of_tier(tier) + " fraction " + std::to_string(fraction));
        }
      }
    }
  }
}

// Rounded moments are not those of fp32, but the same on every tier and however they are cut.
TEST(Tiers, NarrowMomentsTrainAndDoNotDependOnTheirTier) {
  const TemporaryFolder folder;
  EngineOptions options = tier_options(DType::kBFloat16, 1);
  options.zero.stage = 2;
  const WorldResult wide = train_world(options, 8, Wire::kLocal);
  options.offload.nvme_path = {folder.path().string()};
  options.offload.states_dtype = DType::kBFloat16;
  options.offload.optimizer = Tier::kHost;
  const WorldResult host = train_world(options, 8, Wire::kLocal);
  options.offload.optimizer = Tier::kNvme;
  options.offload.chunk_bytes = 1 << 20;
  options.zero.stage = 3;
  expect_same_bits(train_world(options, 8, Wire::kLocal), host, "nvme, stage 3");
  EXPECT_NE(host.losses, wide.losses);
  EXPECT_NEAR(host.losses.back() / wide.losses.back(), 1.0, 0.02);
}

// Steps with everything between them that looks at parameters, sets them, or throws a step away.
WorldResult train_with_interruptions(const EngineOptions& options) {
  constexpr double kScale = 256;
  constexpr double kTooMuch = 1e30;
  std::vector<WorldResult> results(static_cast<std::size_t>(options.dp));
  run_world(options, Wire::kLocal, [&](int rank, Engine& engine) {
    WorldResult& mine = results[static_cast<std::size_t>(rank)];
    std::int64_t updates = 0;
    const auto step = [&](std::int64_t index, double scale) {
      const StepResult result = engine.train_step(
          {.step = index, .lr = 1e-2, .update = updates + 1, .loss_scale = scale});
      EXPECT_EQ(result.finite(), scale == kScale);
      if (!result.finite()) return;
      ++updates;
      mine.losses.push_back(result.loss);
      mine.norms.push_back(result.grad_norm);
    };
    const std::string name = engine.plan().groups[0].tensors[0].spec.name;
    step(1, kScale);
    step(2, kScale);
    mine.losses.push_back(engine.evaluate(1));
    step(3, kScale);
    engine.set_parameter(name, engine.full_parameter(name).mul(0.5));
    step(4, kTooMuch);
    (void)engine.find_non_finite(4);
    step(5, kScale);
    step(6, kTooMuch);
    step(7, kScale);
    mine.eval_loss = engine.evaluate(1);
    for (const GroupPlan& group : engine.plan().groups) {
      const at::Tensor value = engine.full_parameter(group.tensors[0].spec.name);
      const float* data = host_data<float>(value);
      mine.weights[group.name].assign(data, data + value.numel());
    }
  });
  return results[0];
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
        options.train.accumulation_order =
            chunks == 3 ? AccumulationOrder::kLayer : AccumulationOrder::kMicro;
        expect_same_bits(
            train_with_interruptions(options), oracle,
            "ring of " + std::to_string(chunks) + ", gradients on " + name_of_tier(gradients));
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
