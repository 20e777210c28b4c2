// One update for every device: what a kernel is handed, and that the host's is the oracle's.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/update/adamw.hpp"
#include "tests/runtime/engine/update/update_states.hpp"

namespace sluice::testing {
namespace {

TEST(UpdateShard, AKernelIsHandedEachSegmentAsItIs) {
  for (const DType weights : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const DType gradients : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      GroupState state = update_state(weights, gradients);
      std::vector<UpdateSpan> calls;
      add_updates(state, kUpdateOptions, kUpdateArgs, calls);
      ASSERT_EQ(calls.size(), 2U);
      EXPECT_EQ(calls[0].n, 5);
      EXPECT_EQ(calls[1].n, 12);  // the rest of the shard is updated elsewhere
      EXPECT_EQ(calls[0].weight_decay, kUpdateOptions.weight_decay);
      EXPECT_EQ(calls[1].weight_decay, 0);
      for (std::int64_t first = 0; const UpdateSpan& args : calls) {
        EXPECT_EQ(args.master, state.master.data_ptr<float>() + first);
        EXPECT_EQ(args.moments[0], state.moments[0].data_ptr<float>() + first);
        EXPECT_EQ(args.moments[1], state.moments[1].data_ptr<float>() + first);
        EXPECT_EQ(args.grad,
                  static_cast<char*>(state.grad_owned.data_ptr()) + first * size_of(gradients));
        EXPECT_EQ(args.grad_dtype, gradients);
        EXPECT_EQ(args.moments_dtype, DType::kFloat32);
        EXPECT_EQ(args.step, kUpdateArgs.step);
        EXPECT_EQ(args.grad_scale, kUpdateArgs.grad_scale);
        if (state.master_is_shard) {
          EXPECT_EQ(args.weights_out, nullptr);
        } else {
          EXPECT_EQ(args.weights_out,
                    static_cast<char*>(state.shard.data_ptr()) + first * size_of(weights));
          EXPECT_EQ(args.weights_dtype, weights);
        }
        first = args.n;
      }
    }
  }
}

TEST(UpdateShard, AKernelIsHandedTheFormOfTheOptimizer) {
  OptimizerOptions options = kUpdateOptions;
  options.decay = DecayScope::kAll;
  options.decoupled = false;
  options.bias_correction = false;
  GroupState state = update_state(DType::kFloat32, DType::kFloat32);
  std::vector<UpdateSpan> calls;
  add_updates(state, options, kUpdateArgs, calls);
  ASSERT_EQ(calls.size(), 2U);
  for (const UpdateSpan& args : calls) {
    EXPECT_EQ(args.weight_decay, options.weight_decay);
    EXPECT_FALSE(args.decoupled);
    EXPECT_FALSE(args.bias_correction);
  }
  EXPECT_TRUE(update_span(kUpdateOptions, kUpdateArgs, false).decoupled);
  EXPECT_TRUE(update_span(kUpdateOptions, kUpdateArgs, false).bias_correction);
}

// By the formula of adamw.hpp in double, and the 16-bit weights are the master's.
TEST(UpdateShard, OnTheHostIsTheFormula) {
  GroupState state = update_state(DType::kBFloat16, DType::kFloat32);
  const GroupState before = update_state(DType::kBFloat16, DType::kFloat32);
  update_on_its_device(state, kUpdateOptions, kUpdateArgs);
  const auto at = [](const at::Tensor& x, std::int64_t i) {
    return static_cast<double>(host_data<float>(x)[i]);
  };
  for (std::int64_t i = 0; i < 17; ++i) {
    const double g = kUpdateArgs.grad_scale * at(before.grad_owned, i);
    const double m = 0.9 * at(before.moments[0], i) + 0.1 * g;
    const double v =
        kUpdateOptions.betas[1] * at(before.moments[1], i) + (1 - kUpdateOptions.betas[1]) * g * g;
    const double root = std::sqrt(v / (1 - std::pow(kUpdateOptions.betas[1], 3)));
    const double decay = i < 5 ? 1 - kUpdateArgs.lr * kUpdateOptions.weight_decay : 1;
    const double p = at(before.master, i) * decay -
                     kUpdateArgs.lr / (1 - std::pow(0.9, 3)) * m / (root + kUpdateOptions.eps);
    EXPECT_NEAR(at(state.master, i), p, 1e-6) << i;
  }
  EXPECT_TRUE(state.shard.narrow(0, 0, 17).equal(state.master.to(c10::ScalarType::BFloat16)));
  EXPECT_TRUE(state.shard.narrow(0, 17, 6).equal(before.shard.narrow(0, 17, 6)));
}

// bf16 weights and remainders have the bits of whole master weights.
TEST(UpdateShard, OfRemaindersIsThatOfMasterWeights) {
  GroupState whole = bf16_state(DType::kFloat32, false);
  GroupState split = bf16_state(DType::kFloat32, true);
  std::vector<UpdateSpan> calls;
  add_updates(split, kUpdateOptions, kUpdateArgs, calls);
  ASSERT_EQ(calls.size(), 2U);
  for (const UpdateSpan& args : calls) {
    EXPECT_EQ(args.master, nullptr);
    EXPECT_NE(args.remainders, nullptr);
    EXPECT_EQ(args.weights, args.weights_out);
    adamw(args);
  }
  update_on_its_device(whole, kUpdateOptions, kUpdateArgs);
  EXPECT_TRUE(split.shard.equal(whole.shard));
  EXPECT_TRUE(split.remainders.equal(remainders_of(whole.master)));
  for (const int k : {0, 1}) EXPECT_TRUE(nth(split.moments, k).equal(nth(whole.moments, k)));
}

}  // namespace
}  // namespace sluice::testing
