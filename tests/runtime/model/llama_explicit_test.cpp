// The explicit llama block against the autograd one: output, every gradient, dropout, replay; its
// dry run against the allocator.
#include <gtest/gtest.h>

#include "runtime/model/blocks/explicit_units.hpp"
#include "runtime/model/counting_allocator.hpp"
#include "tests/runtime/model/block_run.hpp"

namespace sluice::testing {
namespace {

struct Case {
  const char* name;
  ModelType type;
  std::int64_t batch, seq, hidden, heads, kv_heads, head_dim, ffn, window;
  AttentionBias bias = AttentionBias::kAuto;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// Query blocks with a tail; heads in parts of four with a rest; shared heads; heads wider than the
// residual stream; biases; windows shorter and longer than a block of queries; four chunks of
// tokens.
const Case kCases[] = {
    {"llama", ModelType::kLlama, 3, 37, 48, 3, 3, 16, 88, 0},
    {"shared", ModelType::kLlama, 2, 150, 40, 10, 5, 4, 72, 0, AttentionBias::kQkvo},
    {"wide", ModelType::kLlama, 2, 70, 32, 6, 1, 14, 50, 0},
    {"mistral", ModelType::kMistral, 2, 333, 64, 4, 2, 16, 96, 50},
    {"far", ModelType::kMistral, 1, 200, 48, 3, 3, 16, 64, 130},
    {"qwen2", ModelType::kQwen2, 7, 147, 42, 7, 1, 6, 56, 0},
    {"long", ModelType::kLlama, 1, 1003, 24, 3, 1, 8, 40, 0},
};

ModelOptions options_of(const Case& c, double dropout) {
  ModelOptions options{.layers = 1, .hidden = c.hidden, .heads = c.heads, .vocab = 8, .seq = c.seq};
  options.type = c.type;
  options.kv_heads = c.kv_heads;
  options.head_dim = c.head_dim;
  options.ffn = c.ffn;
  options.sliding_window = c.window;
  options.attention_bias = c.bias;
  options.dropout = dropout;
  options.rope_scaling = RopeScaling::kLlama3;
  options.rope_original_seq = 64;
  return make_model_spec(options).options;
}

struct Units {
  explicit Units(const ModelOptions& options) : shared(std::make_shared<LlamaConstants>(options)) {
    ours = make_llama_explicit_block(options, 3, shared);
    autograd = make_llama_block(options, 3, shared);
  }
  std::shared_ptr<const LlamaConstants> shared;
  std::unique_ptr<Unit> ours, autograd;
};

class ExplicitLlamaBlock : public ::testing::TestWithParam<Case> {};

// The key bias: it shifts all scores of a query nearly alike, which softmax takes out again, so
// that its gradient is a small difference of large sums.
bool cancels(const ModelOptions& options, std::size_t tensor) {
  return static_cast<int>(tensor) - 2 == llama_block_params(options).k_bias;
}

// Autograd in double is the oracle: its own fp32 sums over rows are 1e-6 off.
TEST_P(ExplicitLlamaBlock, EqualsAutogradInFp32) {
  for (const double dropout : {0.0, 0.2}) {
    const ModelOptions options = options_of(GetParam(), dropout);
    const Units units(options);
    const BlockData apart(options, GetParam().batch, c10::ScalarType::Float);
    const BlockData flat(options, GetParam().batch, c10::ScalarType::Float, Layout::kFlat);
    const BlockData exact = apart.to(c10::ScalarType::Double);
    for (const int micro_batches : {1, 2}) {
      const BlockResult want =
          run_block(*units.autograd, exact, BlockMemory::kSaved, micro_batches);
      for (const BlockData* data : {&apart, &flat}) {
        const BlockResult ours = run_block(*units.ours, *data, BlockMemory::kSaved, micro_batches);
        for (std::size_t i = 0; i < want.tensors.size(); ++i) {
          EXPECT_LT(relative_error(ours.tensors[i], want.tensors[i]),
                    cancels(options, i) ? 5e-6 : 1e-6)
              << "dropout " << dropout << " tensor " << i << " micro-batches " << micro_batches;
        }
      }
    }
  }
}

// As near to the exact result as autograd in 16 bits is, up to a quarter of bf16's rounding.
TEST_P(ExplicitLlamaBlock, In16BitsIsAsGoodAsAutograd) {
  const ModelOptions options = options_of(GetParam(), 0);
  const Units units(options);
  const BlockData data(options, GetParam().batch, c10::ScalarType::BFloat16, Layout::kFlat);
  const BlockResult autograd = run_block(*units.autograd, data);
  const BlockResult ours = run_block(*units.ours, data);
  const BlockResult exact = run_block(*units.autograd, data.to(c10::ScalarType::Float));
  for (std::size_t i = 0; i < exact.tensors.size(); ++i) {
    const double error = relative_error(ours.tensors[i], exact.tensors[i]);
    EXPECT_LT(error, 1.25 * relative_error(autograd.tensors[i], exact.tensors[i]) + 0x1p-10) << i;
    EXPECT_LT(error, 0.02) << i;
  }
}

TEST_P(ExplicitLlamaBlock, ReplayAndRecomputedAttentionGiveTheSameBits) {
  for (const double dropout : {0.0, 0.2}) {
    ModelOptions options = options_of(GetParam(), dropout);
    for (const auto type : {c10::ScalarType::Float, c10::ScalarType::BFloat16}) {
      const BlockData data(options, GetParam().batch, type, Layout::kFlat);
      const Units units(options);
      const BlockResult first = run_block(*units.ours, data);
      expect_same_bits(run_block(*units.ours, data, BlockMemory::kRecomputed), first, "replayed");
      ModelOptions selective = options;
      selective.recompute_attention = true;
      const Units again(selective);
      expect_same_bits(run_block(*again.ours, data), first, "selective");
      expect_same_bits(run_block(*again.ours, data, BlockMemory::kRecomputed), first, "both");
    }
  }
}

TEST_P(ExplicitLlamaBlock, DryRunEqualsTheRealRun) {
  install_counting_allocators();
  for (const double dropout : {0.0, 0.1}) {
    for (const bool selective : {false, true}) {
      ModelOptions options = options_of(GetParam(), dropout);
      options.recompute_attention = selective;
      const BlockData data(options, GetParam().batch, c10::ScalarType::Float, Layout::kFlat);
      expect_dry_run_is_real(
          make_model(options), data,
          "dropout " + std::to_string(dropout) + (selective ? " selective" : ""));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Family, ExplicitLlamaBlock, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// Elements a token: q, k, v, attention's output and the residual stream, and gate and up.
TEST(ExplicitLlamaBlock, KeepsWhatItDeclares) {
  ModelOptions options{.layers = 1, .hidden = 512, .heads = 8, .vocab = 8, .seq = 256};
  options.type = ModelType::kLlama;
  options.kv_heads = 2;
  options.ffn = 1408;
  const ProfileShape shape{.micro_batch = 4, .seq = 256};
  const std::int64_t token = 4 * 256 * 4;
  const UnitMemory ours = profile_unit(make_model(options), 1, shape);
  EXPECT_EQ(ours.kept, token * (512 + 2 * 128 + 2 * 512 + 2 * 1408));
  options.recompute_attention = true;
  EXPECT_EQ(profile_unit(make_model(options), 1, shape).kept, ours.kept - token * 512);
  options.recompute_attention = false;
  options.explicit_units = false;
  const UnitMemory autograd = profile_unit(make_model(options), 1, shape);
  EXPECT_LT(2 * ours.kept, autograd.kept);
  EXPECT_LT(2 * ours.backward_peak, autograd.backward_peak);
}

}  // namespace
}  // namespace sluice::testing
