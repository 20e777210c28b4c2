// The explicit GPT-2 block against the autograd one: output, every gradient, dropout, replay; and
// its dry run against the allocator.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/cpu/parallel.hpp"
#include "runtime/model/counting_allocator.hpp"
#include "runtime/model/explicit_units.hpp"
#include "runtime/model/gpt2_units.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/model/unit_profile.hpp"
#include "tests/runtime/model/golden.hpp"

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

struct Data {
  Data(const ModelOptions& options, const Sizes& sizes, c10::ScalarType type) {
    const ParamGroup group = make_model_spec(options).groups[2];
    for (const ParamSpec& param : group.params) {
      const auto k = static_cast<std::uint64_t>(params.size());
      const bool one = param.init == Init::kOnes;
      params.push_back(rule_tensor(k, param.tensor.shape, one ? 0.2 : 0.1, one ? 1 : 0).to(type));
    }
    const std::vector<std::int64_t> shape{sizes.batch, sizes.seq, sizes.hidden};
    x = rule_tensor(100, shape, 1.0).to(type);
    dy = rule_tensor(101, shape, 1.0).to(type);
  }
  std::vector<at::Tensor> params;
  at::Tensor x, dy;
};

struct Result {
  std::vector<at::Tensor> tensors;  // y, dx, gradients of the parameters
};

enum class Memory { kSaved, kRecomputed };

Result run(Unit& unit, const Data& data, Memory memory = Memory::kSaved, int micro_batches = 1) {
  CollectingSink sink(data.params);
  Result result{{{}, {}}};
  const at::Tensor dy_before = data.dy.clone();
  for (int i = 0; i < micro_batches; ++i) {
    const UnitCall call{.training = true, .seed = 5, .step = 7, .first_sample = 11 * i};
    std::unique_ptr<Saved> saved;
    const bool keep = memory == Memory::kSaved;
    result.tensors[0] = unit.forward(call, data.params, data.x, keep ? &saved : nullptr);
    result.tensors[1] = unit.backward(call, data.params, data.x, std::move(saved), data.dy, sink);
  }
  EXPECT_TRUE(data.dy.equal(dy_before));
  for (std::size_t i = 0; i < data.params.size(); ++i) result.tensors.push_back(sink.grad(i));
  return result;
}

double relative(const at::Tensor& ours, const at::Tensor& want) {
  const at::Tensor wide = want.to(c10::ScalarType::Double);
  return norm_of(ours.to(c10::ScalarType::Double).sub(wide)) / norm_of(wide);
}

void expect_same_bits(const Result& a, const Result& b, const char* what) {
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    EXPECT_TRUE(a.tensors[i].equal(b.tensors[i])) << what << ", tensor " << i;
  }
}

// Autograd in double is the oracle: its own fp32 sums over rows are 1e-6 off.
TEST(ExplicitGpt2Block, EqualsAutogradInFp32) {
  for (const Sizes& sizes : kSizes) {
    for (const double dropout : {0.0, 0.2}) {
      const ModelOptions options = options_of(sizes, dropout);
      const Data data(options, sizes, c10::ScalarType::Float);
      const Data exact(options, sizes, c10::ScalarType::Double);
      for (const int micro_batches : {1, 2}) {
        const Result want = run(*make_gpt2_block(options, 3), exact, Memory::kSaved, micro_batches);
        const Result ours =
            run(*make_gpt2_explicit_block(options, 3), data, Memory::kSaved, micro_batches);
        for (std::size_t i = 0; i < want.tensors.size(); ++i) {
          EXPECT_LT(relative(ours.tensors[i], want.tensors[i]), 1e-6)
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
    Data data(options, sizes, c10::ScalarType::BFloat16);
    const Result autograd = run(*make_gpt2_block(options, 3), data);
    const Result ours = run(*make_gpt2_explicit_block(options, 3), data);
    for (at::Tensor& param : data.params) param = param.to(c10::ScalarType::Float);
    data.x = data.x.to(c10::ScalarType::Float);
    data.dy = data.dy.to(c10::ScalarType::Float);
    const Result exact = run(*make_gpt2_block(options, 3), data);
    for (std::size_t i = 0; i < exact.tensors.size(); ++i) {
      const double error = relative(ours.tensors[i], exact.tensors[i]);
      EXPECT_LT(error, 1.25 * relative(autograd.tensors[i], exact.tensors[i]) + 1e-4) << i;
      EXPECT_LT(error, 0.02) << i;
    }
  }
}

// Products in fp32: nearer to the exact result than native ones, and replayed to the bit.
TEST(ExplicitGpt2Block, In16BitsMultipliedInFp32IsBetter) {
  const Sizes sizes = kSizes[1];
  ModelOptions options = options_of(sizes, 0.2);
  Data data(options, sizes, c10::ScalarType::BFloat16);
  const Result native = run(*make_gpt2_explicit_block(options, 3), data, Memory::kSaved, 2);
  options.matmul = MatmulType::kFp32;
  const Result ours = run(*make_gpt2_explicit_block(options, 3), data, Memory::kSaved, 2);
  expect_same_bits(run(*make_gpt2_explicit_block(options, 3), data, Memory::kRecomputed, 2), ours,
                   "recomputed");
  for (at::Tensor& param : data.params) param = param.to(c10::ScalarType::Double);
  data.x = data.x.to(c10::ScalarType::Double);
  data.dy = data.dy.to(c10::ScalarType::Double);
  const Result exact = run(*make_gpt2_block(options, 3), data, Memory::kSaved, 2);
  for (std::size_t i = 0; i < exact.tensors.size(); ++i) {
    EXPECT_LT(relative(ours.tensors[i], exact.tensors[i]),
              1.02 * relative(native.tensors[i], exact.tensors[i]))
        << i;
  }
}

TEST(ExplicitGpt2Block, ReplayAndThreadsGiveTheSameBits) {
  for (const double dropout : {0.0, 0.2}) {
    const Sizes sizes = kSizes[1];
    const ModelOptions options = options_of(sizes, dropout);
    const Data data(options, sizes, c10::ScalarType::Float);
    const std::unique_ptr<Unit> unit = make_gpt2_explicit_block(options, 0);
    const Result first = run(*unit, data);
    expect_same_bits(run(*unit, data, Memory::kRecomputed), first, "recomputed");
    const int threads = compute_threads();
    for (const int count : {1, 3}) {
      set_compute_threads(count);
      expect_same_bits(run(*unit, data), first, "threads");
    }
    set_compute_threads(threads);
  }
}

TEST(ExplicitGpt2Block, RecomputedAttentionGivesTheSameBitsAndKeepsLess) {
  const Sizes sizes = kSizes[1];
  for (const double dropout : {0.0, 0.2}) {
    ModelOptions options = options_of(sizes, dropout);
    for (const auto type : {c10::ScalarType::Float, c10::ScalarType::BFloat16}) {
      const Data data(options, sizes, type);
      options.recompute_attention = false;
      const Result kept = run(*make_gpt2_explicit_block(options, 3), data);
      options.recompute_attention = true;
      expect_same_bits(run(*make_gpt2_explicit_block(options, 3), data), kept, "selective");
    }
    const ProfileShape shape{.micro_batch = sizes.batch, .seq = sizes.seq};
    const UnitMemory selective = profile_unit(make_model(options), 1, shape);
    EXPECT_EQ(selective.kept, sizes.batch * sizes.seq * sizes.hidden * 4 * 8);
  }
}

TEST(ExplicitGpt2Block, WithoutTrainingNothingDropsOut) {
  const ModelOptions dropping = options_of(kSizes[0], 0.5);
  const Data data(dropping, kSizes[0], c10::ScalarType::Float);
  const at::Tensor y =
      make_gpt2_explicit_block(dropping, 0)->forward({}, data.params, data.x, nullptr);
  const at::Tensor plain = make_gpt2_explicit_block(options_of(kSizes[0], 0), 0)
                               ->forward({.training = true}, data.params, data.x, nullptr);
  EXPECT_TRUE(y.equal(plain));
}

UnitMemory real_memory(Unit& unit, const Data& data) {
  const auto host = [] { return allocation_count(CountedDevice::kHost); };
  CollectingSink sink(data.params);
  const UnitCall call{.training = true};
  UnitMemory real;
  real.output = data.x.numel() * static_cast<std::int64_t>(data.x.element_size());
  std::int64_t start = host().live;
  reset_allocation_peak(CountedDevice::kHost);
  (void)unit.forward(call, data.params, data.x, nullptr);
  real.forward_only_peak = host().peak - start;
  reset_allocation_peak(CountedDevice::kHost);
  std::unique_ptr<Saved> saved;
  at::Tensor y = unit.forward(call, data.params, data.x, &saved);
  real.forward_peak = host().peak - start;
  real.kept = host().live - start - real.output;
  y.reset();
  start = host().live;
  reset_allocation_peak(CountedDevice::kHost);
  (void)unit.backward(call, data.params, data.x, std::move(saved), data.dy, sink);
  real.backward_peak = host().peak - start;
  start = host().live;
  reset_allocation_peak(CountedDevice::kHost);
  (void)unit.backward(call, data.params, data.x, nullptr, data.dy, sink);
  real.recompute_peak = host().peak - start;
  return real;
}

Model explicit_model(const ModelOptions& options) {
  Model model = make_model(options);
  model.units[1] = make_gpt2_explicit_block(model.spec.options, 0);
  return model;
}

TEST(ExplicitGpt2Block, DryRunEqualsTheRealRun) {
  install_counting_allocators();
  constexpr std::int64_t kScalars = 64;  // numbers that libtorch wraps in 0-dim host tensors
  for (const Sizes& sizes : kSizes) {
    for (const double dropout : {0.0, 0.1}) {
      const ModelOptions options = options_of(sizes, dropout);
      const Model model = explicit_model(options);
      const Data data(options, sizes, c10::ScalarType::Float);
      const UnitMemory real = real_memory(*model.units[1], data);
      const UnitMemory meta =
          profile_unit(model, 1, {.micro_batch = sizes.batch, .seq = sizes.seq});
      EXPECT_EQ(meta.kept, real.kept);
      EXPECT_LE(std::abs(meta.forward_peak - real.forward_peak), kScalars);
      EXPECT_LE(std::abs(meta.forward_only_peak - real.forward_only_peak), kScalars);
      EXPECT_LE(std::abs(meta.backward_peak - real.backward_peak), kScalars);
      EXPECT_LE(std::abs(meta.recompute_peak - real.recompute_peak), kScalars);
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
