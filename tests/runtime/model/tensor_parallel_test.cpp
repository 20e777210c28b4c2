// Tensor- and sequence-parallel units against the same model on one rank: activations, loss, input
// gradients and every slice of every parameter's gradient.
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/runtime/model/block_run.hpp"
#include "tests/runtime/model/part_run.hpp"

namespace sluice::testing {
namespace {

using at::Tensor;

ModelOptions gpt2(double dropout = 0) {
  ModelOptions o{.layers = 2, .hidden = 24, .heads = 6, .vocab = 101, .seq = 12};
  o.dropout = dropout;
  return o;
}

ModelOptions llama(std::int64_t kv_heads, double dropout = 0) {
  ModelOptions o{.layers = 2, .hidden = 48, .heads = 12, .vocab = 93, .seq = 12};
  o.type = ModelType::kLlama;
  o.kv_heads = kv_heads;
  o.head_dim = 6;  // wider in sum than hidden
  o.ffn = 36;
  o.tie_embeddings = false;
  o.dropout = dropout;
  return o;
}

ModelOptions mistral() {
  ModelOptions o = llama(3);
  o.type = ModelType::kMistral;
  o.sliding_window = 5;
  return o;
}

ModelOptions qwen2(AttentionBias bias = AttentionBias::kAuto) {
  ModelOptions o = llama(2, 0.1);
  o.type = ModelType::kQwen2;
  o.attention_bias = bias;
  o.tie_embeddings = true;
  return o;
}

struct Named {
  const char* name;
  PartCase part;
};

std::vector<Named> cases() {
  std::vector<Named> all;
  for (const bool sequence : {false, true}) {
    all.push_back({"gpt2 x2", {.options = gpt2(), .tensor = 2, .sequence = sequence}});
    all.push_back({"gpt2 x3, dropout", {.options = gpt2(0.2), .tensor = 3, .sequence = sequence}});
    all.push_back({"llama x2", {.options = llama(4), .tensor = 2, .sequence = sequence}});
    all.push_back({"llama x4, 2 key heads, dropout",
                   {.options = llama(2, 0.2), .tensor = 4, .sequence = sequence}});
    all.push_back({"llama x6, 3 key heads",
                   {.options = llama(3), .tensor = 6, .sequence = sequence, .batch = 1}});
    all.push_back({"mistral x3", {.options = mistral(), .tensor = 3, .sequence = sequence}});
    all.push_back({"qwen2 x4", {.options = qwen2(), .tensor = 4, .sequence = sequence}});
    all.push_back({"qwen2 x2, all biases",
                   {.options = qwen2(AttentionBias::kQkvo), .tensor = 2, .sequence = sequence}});
  }
  return all;
}

PartResult whole_of(PartCase given) {
  given.tensor = 1;
  given.sequence = false;
  return run_parts(given)[0];
}

// The rank's tokens of [B, S, H].
Tensor own_tokens(const Tensor& whole, const PartCase& given, int rank) {
  if (!given.sequence) return whole;
  const std::int64_t each = whole.size(1) / given.tensor;
  return whole.narrow(1, rank * each, each);
}

struct Comparison {
  const PartCase& given;
  const std::vector<PartResult>& ranks;
  const PartResult& whole;
  double tolerance;

  void activations() const {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      SCOPED_TRACE("rank " + std::to_string(r));
      const int rank = static_cast<int>(r);
      EXPECT_EQ(ranks[r].loss, ranks[0].loss);
      EXPECT_NEAR(ranks[r].loss / whole.loss, 1, tolerance);
      EXPECT_TRUE(ranks[r].logits.equal(ranks[0].logits));
      EXPECT_LT(relative_error(ranks[r].logits, whole.logits), tolerance);
      EXPECT_LT(relative_error(ranks[r].hidden, own_tokens(whole.hidden, given, rank)), tolerance);
      EXPECT_LT(relative_error(ranks[r].grad_hidden, own_tokens(whole.grad_hidden, given, rank)),
                tolerance);
    }
  }

  // What the engine makes of a group's gradient: the sum over its replicas where they have parts.
  Tensor gradient(const ParamGroup& group, const std::string& name, std::size_t rank) const {
    if (!group.sums_replicas) return ranks[rank].grads.at(name);
    const auto n = static_cast<std::size_t>(group.replica_ranks);
    Tensor sum = at::zeros_like(ranks[rank].grads.at(name));
    for (std::size_t r = rank / n * n; r < rank / n * n + n; ++r) sum.add_(ranks[r].grads.at(name));
    return sum;
  }

  void gradients() const {
    std::map<std::string, std::int64_t> counted;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      SCOPED_TRACE("rank " + std::to_string(r));
      const ModelSpec spec =
          make_model_spec(given.options, part_of_rank(given, static_cast<int>(r)));
      for (const ParamGroup& group : spec.groups) {
        for (const ParamSpec& param : group.params) {
          const std::string& name = param.tensor.name;
          const Tensor want = part_of_whole(whole.grads.at(name), param);
          EXPECT_LT(relative_error(gradient(group, name, r), want), tolerance) << name;
          if (group.replicas == Replicas::kTensor && !group.sums_replicas) {
            EXPECT_TRUE(ranks[r].grads.at(name).equal(ranks[0].grads.at(name))) << name;
          }
          if (group.counted) counted[name] += want.numel();
        }
      }
    }
    for (const auto& [name, grad] : whole.grads) EXPECT_EQ(counted[name], grad.numel()) << name;
  }
};

TEST(TensorParallel, EqualsOneRankInFp32) {
  for (const Named& named : cases()) {
    SCOPED_TRACE(std::string(named.name) + (named.part.sequence ? ", sequence" : ""));
    const PartResult whole = whole_of(named.part);
    const std::vector<PartResult> ranks = run_parts(named.part);
    const Comparison comparison{named.part, ranks, whole, 1e-5};
    comparison.activations();
    comparison.gradients();
  }
}

void expect_equal(const std::vector<PartResult>& a, const std::vector<PartResult>& b) {
  for (std::size_t r = 0; r < a.size(); ++r) {
    EXPECT_EQ(a[r].loss, b[r].loss);
    EXPECT_TRUE(a[r].grad_hidden.equal(b[r].grad_hidden));
    for (const auto& [name, grad] : a[r].grads) {
      EXPECT_TRUE(grad.equal(b[r].grads.at(name))) << name << ", rank " << r;
    }
  }
}

TEST(TensorParallel, RecomputationAndASplitBackwardGiveTheSameBits) {
  for (Named& named : cases()) {
    SCOPED_TRACE(std::string(named.name) + (named.part.sequence ? ", sequence" : ""));
    const std::vector<PartResult> kept = run_parts(named.part);
    named.part.mode = PartMode::kRecomputed;
    expect_equal(run_parts(named.part), kept);
    named.part.mode = PartMode::kSplit;
    expect_equal(run_parts(named.part), kept);
    named.part.mode = PartMode::kSaved;
    named.part.options.recompute_attention = true;
    expect_equal(run_parts(named.part), kept);
  }
}

TEST(TensorParallel, ASplitBackwardOfOneRankGivesTheSameBits) {
  for (const ModelOptions& options : {gpt2(0.2), llama(4), qwen2()}) {
    for (const auto type : {c10::ScalarType::Float, c10::ScalarType::BFloat16}) {
      PartCase given{.options = options, .type = type};
      const std::vector<PartResult> at_once = run_parts(given);
      given.mode = PartMode::kSplit;
      expect_equal(run_parts(given), at_once);
    }
  }
}

TEST(TensorParallel, IsCloseIn16Bits) {
  for (const bool sequence : {false, true}) {
    for (const ModelOptions& options : {gpt2(0.1), llama(2)}) {
      const PartCase given{
          .options = options, .tensor = 2, .sequence = sequence, .type = c10::ScalarType::BFloat16};
      const PartResult whole = whole_of(given);
      const std::vector<PartResult> ranks = run_parts(given);
      const Comparison comparison{given, ranks, whole, 0.05};
      comparison.activations();
      comparison.gradients();
    }
  }
}

// More rows than a chunk of the head, and the vocabulary of gpt2.
TEST(TensorParallel, CutsALargeOddVocabulary) {
  PartCase given{.options = gpt2(), .tensor = 2, .sequence = true, .batch = 3};
  given.options.vocab = 50257;
  given.options.layers = 1;
  given.options.seq = 100;
  const PartResult whole = whole_of(given);
  const std::vector<PartResult> ranks = run_parts(given);
  const Comparison comparison{given, ranks, whole, 1e-5};
  comparison.activations();
  comparison.gradients();
}

TEST(TensorParallel, RefusesWhatCannotBeShared) {
  PartCase given{.options = gpt2(), .tensor = 2, .sequence = true};
  given.options.seq = 11;
  EXPECT_THROW((void)make_model(given.options, part_of_rank(given, 0)), ConfigError);
  given.sequence = false;
  (void)make_model(given.options, part_of_rank(given, 0));
  given.options.explicit_units = false;
  EXPECT_THROW((void)make_model(given.options, part_of_rank(given, 0)), ConfigError);
}

}  // namespace
}  // namespace sluice::testing
