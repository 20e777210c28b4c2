#include "tests/runtime/engine/tier_matrix.hpp"

#include <gtest/gtest.h>

#include <utility>

#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice::testing {

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

void place(EngineOptions& options, const Placed& p) {
  options.offload.optimizer = p.optimizer;
  options.offload.parameters = p.parameters;
  options.offload.gradients = p.gradients;
  options.offload.activations = p.activations;
}

void train_biases_alone(EngineOptions& options) {
  options.model.freeze = {"wte", "wpe", "h.*.*.weight", "h.*.*.*.weight", "ln_f.weight"};
  options.optimizer.type = OptimizerType::kSgd;
  options.optimizer.lr = 1;
  options.optimizer.momentum = 0;
  options.optimizer.weight_decay = 0;
  options.train.clip = 0;
}

std::string describe(const Placed& p, const EngineOptions& o) {
  return "stage " + std::to_string(o.zero.stage) + ", optimizer " + name_of_tier(p.optimizer) +
         ", parameters " + name_of_tier(p.parameters) + ", gradients " + name_of_tier(p.gradients) +
         ", activations " + name_of_tier(p.activations) +
         (o.train.accumulation_order == AccumulationOrder::kLayer ? ", layer-major" : "") +
         (o.recompute.mode == RecomputeMode::kFull ? ", recompute" : "") + ", accumulation " +
         std::to_string(o.train.global_batch / (o.dp * o.train.micro_batch)) + ", " +
         std::string(name_of(o.train.dtype)) + (o.model.matmul == MatmulType::kFp8 ? ", fp8" : "");
}

namespace {

bool has_meaning(const Placed& p, int stage) {
  if (p.parameters != Tier::kDevice && (stage < 3 || p.optimizer == Tier::kDevice)) return false;
  return p.gradients == Tier::kDevice || (stage >= 2 && p.optimizer != Tier::kDevice);
}

}  // namespace

void run_matrix(int every, const std::function<void(EngineOptions&)>& adapt) {
  const TemporaryFolder folder;
  const Tier tiers[] = {Tier::kDevice, Tier::kHost, Tier::kNvme};
  int count = 0;
  int ran = 0;
  for (const auto& [dtype, matmul] : {std::pair{DType::kFloat32, MatmulType::kNative},
                                      std::pair{DType::kBFloat16, MatmulType::kNative},
                                      std::pair{DType::kBFloat16, MatmulType::kFp8}}) {
    for (const int accumulation : {1, 3}) {
      EngineOptions options = tier_options(dtype, accumulation);
      options.model.matmul = matmul;
      const WorldResult oracle = train_world(options, kTierSteps, Wire::kLocal);
      options.offload.nvme_path = {folder.path().string()};
      if (adapt) adapt(options);
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
            expect_same_bits(train_world(options, kTierSteps, Wire::kLocal), oracle, what);
            ++ran;
            if (::testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
  EXPECT_GE(ran, count / every);
}

WorldResult train_with_interruptions(const EngineOptions& options) {
  std::vector<WorldResult> results(static_cast<std::size_t>(options.dp));
  run_world(options, Wire::kLocal, [&](int rank, Engine& engine) {
    WorldResult& mine = results[static_cast<std::size_t>(rank)];
    ScaledSteps step(engine, mine);
    const std::string name = engine.plan().groups[0].tensors[0].spec.name;
    step(1, ScaledSteps::kScale);
    step(2, ScaledSteps::kScale);
    mine.losses.push_back(engine.evaluate(1));
    step(3, ScaledSteps::kScale);
    engine.set_parameter(name, engine.full_parameter(name).mul(0.5));
    step(4, ScaledSteps::kTooMuch);
    (void)engine.find_non_finite(4);
    step(5, ScaledSteps::kScale);
    step(6, ScaledSteps::kTooMuch);
    step(7, ScaledSteps::kScale);
    mine.eval_loss = engine.evaluate(1);
    note_weights(engine, mine);
  });
  return results[0];
}

}  // namespace sluice::testing
