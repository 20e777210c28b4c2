// The explicit GPT-2 block against the autograd one: output, every gradient, dropout, replay; and
// its dry run against the allocator.
#include <gtest/gtest.h>

#include <string>

#include "kernels/cpu/parallel.hpp"
#include "runtime/model/blocks/explicit_units.hpp"
#include "runtime/model/blocks/gpt2_units.hpp"
#include "runtime/model/counting_allocator.hpp"
#include "runtime/model/unit_profile.hpp"
#include "tests/runtime/model/block_run.hpp"

namespace sluice::testing {
namespace {

struct Sizes {
  std::int64_t batch, seq, hidden, heads;
};
// One chunk of tokens; two, the second begins within a sample; four of 258 rows and less, and heads
// that attention takes in two parts.
const Sizes kSizes[] = {{3, 37, 48, 3}, {2, 150, 96, 4}, {7, 147, 40, 5}};

ModelOptions options_of(const Sizes& sizes, double dropout) {
  ModelOptions options{
      .layers = 1, .hidden = sizes.hidden, .heads = sizes.heads, .vocab = 8, .seq = sizes.seq};
  options.dropout = dropout;
  return make_model_spec(options).options;
}

BlockData data_of(const ModelOptions& options, const Sizes& sizes, c10::ScalarType type) {
  return {options, sizes.batch, type};
}

// Autograd in double is the oracle: its own fp32 sums over rows are 1e-6 off.
TEST(ExplicitGpt2Block, EqualsAutogradInFp32) {
  for (const Sizes& sizes : kSizes) {
    for (const double dropout : {0.0, 0.2}) {
      const ModelOptions options = options_of(sizes, dropout);
      const BlockData data = data_of(options, sizes, c10::ScalarType::Float);
      const BlockData exact = data_of(options, sizes, c10::ScalarType::Double);
      for (const int micro_batches : {1, 2}) {
        const BlockResult want =
            run_block(*make_gpt2_block(options, 3), exact, BlockMemory::kSaved, micro_batches);
        const BlockResult ours = run_block(*make_gpt2_explicit_block(options, 3), data,
                                           BlockMemory::kSaved, micro_batches);
        for (std::size_t i = 0; i < want.tensors.size(); ++i) {
          EXPECT_LT(relative_error(ours.tensors[i], want.tensors[i]), 1e-6)
              << "hidden " << sizes.hidden << " dropout " << dropout << " tensor " << i;
        }
      }
    }
  }
}

// As near to the exact result as autograd in 16 bits is.
TEST(ExplicitGpt2Block, In16BitsIsAsGoodAsAutograd) {
  for (const double dropout : {0.0, 0.2}) {
    const Sizes sizes = kSizes[1];
    const ModelOptions options = options_of(sizes, dropout);
    const BlockData data = data_of(options, sizes, c10::ScalarType::BFloat16);
    const BlockResult autograd = run_block(*make_gpt2_block(options, 3), data);
    const BlockResult ours = run_block(*make_gpt2_explicit_block(options, 3), data);
    const BlockResult exact =
        run_block(*make_gpt2_block(options, 3), data.to(c10::ScalarType::Float));
    for (std::size_t i = 0; i < exact.tensors.size(); ++i) {
      const double error = relative_error(ours.tensors[i], exact.tensors[i]);
      EXPECT_LT(error, 1.25 * relative_error(autograd.tensors[i], exact.tensors[i]) + 1e-4) << i;
      EXPECT_LT(error, 0.02) << i;
    }
  }
}

// Products in fp32: nearer to the exact result than native ones, and replayed to the bit.
TEST(ExplicitGpt2Block, In16BitsMultipliedInFp32IsBetter) {
  const Sizes sizes = kSizes[1];
  ModelOptions options = options_of(sizes, 0.2);
  const BlockData data = data_of(options, sizes, c10::ScalarType::BFloat16);
  const BlockResult native =
      run_block(*make_gpt2_explicit_block(options, 3), data, BlockMemory::kSaved, 2);
  options.matmul = MatmulType::kFp32;
  const BlockResult ours =
      run_block(*make_gpt2_explicit_block(options, 3), data, BlockMemory::kSaved, 2);
  expect_same_bits(
      run_block(*make_gpt2_explicit_block(options, 3), data, BlockMemory::kRecomputed, 2), ours,
      "recomputed");
  const BlockResult exact = run_block(*make_gpt2_block(options, 3),
                                      data.to(c10::ScalarType::Double), BlockMemory::kSaved, 2);
  for (std::size_t i = 0; i < exact.tensors.size(); ++i) {
    EXPECT_LT(relative_error(ours.tensors[i], exact.tensors[i]),
              1.02 * relative_error(native.tensors[i], exact.tensors[i]))
        << i;
  }
}

TEST(ExplicitGpt2Block, ReplayAndThreadsGiveTheSameBits) {
  for (const double dropout : {0.0, 0.2}) {
    const Sizes sizes = kSizes[1];
    const ModelOptions options = options_of(sizes, dropout);
    const BlockData data = data_of(options, sizes, c10::ScalarType::Float);
    const std::unique_ptr<Unit> unit = make_gpt2_explicit_block(options, 0);
    const BlockResult first = run_block(*unit, data);
    expect_same_bits(run_block(*unit, data, BlockMemory::kRecomputed), first, "recomputed");
    const int threads = compute_threads();
    for (const int count : {1, 3}) {
      set_compute_threads(count);
      expect_same_bits(run_block(*unit, data), first, "threads");
    }
    set_compute_threads(threads);
  }
}

TEST(ExplicitGpt2Block, RecomputedAttentionGivesTheSameBitsAndKeepsLess) {
  const Sizes sizes = kSizes[1];
  for (const double dropout : {0.0, 0.2}) {
    ModelOptions options = options_of(sizes, dropout);
    for (const auto type : {c10::ScalarType::Float, c10::ScalarType::BFloat16}) {
      const BlockData data = data_of(options, sizes, type);
      options.recompute_attention = false;
      const BlockResult kept = run_block(*make_gpt2_explicit_block(options, 3), data);
      options.recompute_attention = true;
      expect_same_bits(run_block(*make_gpt2_explicit_block(options, 3), data), kept, "selective");
    }
    const ProfileShape shape{.micro_batch = sizes.batch, .seq = sizes.seq};
    const UnitMemory selective = profile_unit(make_model(options), 1, shape);
    EXPECT_EQ(selective.kept, sizes.batch * sizes.seq * sizes.hidden * 4 * 8);
  }
}

TEST(ExplicitGpt2Block, WithoutTrainingNothingDropsOut) {
  const ModelOptions dropping = options_of(kSizes[0], 0.5);
  const BlockData data = data_of(dropping, kSizes[0], c10::ScalarType::Float);
  const at::Tensor y =
      make_gpt2_explicit_block(dropping, 0)->forward({}, data.params, data.x, nullptr);
  const at::Tensor plain = make_gpt2_explicit_block(options_of(kSizes[0], 0), 0)
                               ->forward({.training = true}, data.params, data.x, nullptr);
  EXPECT_TRUE(y.equal(plain));
}

Model explicit_model(const ModelOptions& options) {
  Model model = make_model(options);
  model.units[1] = make_gpt2_explicit_block(model.spec.options, 0);
  return model;
}

TEST(ExplicitGpt2Block, DryRunEqualsTheRealRun) {
  install_counting_allocators();
  for (const Sizes& sizes : kSizes) {
    for (const double dropout : {0.0, 0.1}) {
      const ModelOptions options = options_of(sizes, dropout);
      expect_dry_run_is_real(explicit_model(options),
                             data_of(options, sizes, c10::ScalarType::Float),
                             "hidden " + std::to_string(sizes.hidden));
    }
  }
}

// 9 hidden-sized elements a token; backward grows by a fraction of what autograd's does.
TEST(ExplicitGpt2Block, KeepsWhatItDeclares) {
  const ModelOptions options = options_of({4, 256, 512, 8}, 0);
  const ProfileShape shape{.micro_batch = 4, .seq = 256};
  const UnitMemory ours = profile_unit(explicit_model(options), 1, shape);
  ModelOptions oracle = options;
  oracle.explicit_units = false;
  const UnitMemory autograd = profile_unit(make_model(oracle), 1, shape);
  const std::int64_t tokens = 4 * 256;
  EXPECT_EQ(ours.kept, tokens * 9 * 512 * 4);
  EXPECT_LT(ours.backward_peak, tokens * 512 * 4 * 5 / 2);
  EXPECT_LT(3 * ours.backward_peak, autograd.backward_peak);
}

}  // namespace
}  // namespace sluice::testing
