#include "tests/runtime/engine/image/image_life.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace sluice::testing {

EngineOptions image_model(DType dtype, int dp) {
  EngineOptions options = tiny_options();
  options.model = {.layers = 5, .hidden = 48, .heads = 3, .vocab = 67, .seq = 16};
  options.dp = dp;
  options.zero.stage = 3;
  options.train.dtype = dtype;
  options.train.clip = 0;
  options.train.global_batch = 2 * dp * options.train.micro_batch;
  options.offload.chunk_bytes = 16 * 1024;
  options.offload.chunks = 2;
  options.offload.block_bytes = 32 * 1024;
  return options;
}

void keep_image(EngineOptions& options, const std::string& folder) {
  options.offload.optimizer = Tier::kNvme;
  options.offload.nvme_path = {folder};
  options.offload.image = true;
  options.tiers.nvme.block_bytes = options.offload.block_bytes;
}

ImageLife live(EngineOptions options, std::int64_t last, bool to_the_end) {
  options.tiers.image.look = true;
  ImageLife life;
  run_world(options, Wire::kLocal, [&](int rank, Engine& engine) {
    ImageLife mine;
    mine.from = engine.image() ? engine.image()->step : -1;
    if (engine.image() && mine.from > 0) {
      EXPECT_EQ(engine.image()->state, "after " + std::to_string(mine.from));
    }
    for (std::int64_t step = std::max<std::int64_t>(mine.from, 0) + 1; step <= last; ++step) {
      const StepResult result = engine.train_step({.step = step, .lr = options.optimizer.lr});
      engine.set_image_state("after " + std::to_string(step));
      mine.result.losses.push_back(result.loss);
      mine.result.norms.push_back(result.grad_norm);
    }
    mine.counts = engine.speculation_counts();
    if (to_the_end) {
      mine.result.eval_loss = engine.evaluate(1);
      note_weights(engine, mine.result);
      engine.end_image();
    }
    if (rank == 0) life = mine;
  });
  return life;
}

WorldResult uninterrupted(const EngineOptions& options) {
  WorldResult result;
  run_world(options, Wire::kLocal, [&](int rank, Engine& engine) {
    WorldResult mine;
    train_steps(engine, options, kImageSteps, mine);
    if (rank == 0) result = mine;
  });
  return result;
}

void expect_goes_on(const ImageLife& life, std::int64_t from, const WorldResult& oracle,
                    const std::string& what) {
  EXPECT_EQ(life.from, from) << what;
  for (std::size_t i = 0; i < life.result.losses.size(); ++i) {
    const std::size_t step = static_cast<std::size_t>(std::max<std::int64_t>(from, 0)) + i;
    ASSERT_EQ(life.result.losses[i], oracle.losses.at(step)) << what << ", step " << step + 1;
    ASSERT_EQ(life.result.norms[i], oracle.norms.at(step)) << what << ", step " << step + 1;
  }
}

void expect_ends_alike(ImageLife life, const WorldResult& oracle, const std::string& what) {
  life.result.losses = oracle.losses;
  life.result.norms = oracle.norms;
  expect_same_bits(life.result, oracle, what);
}

}  // namespace sluice::testing
