// Figures that others have published, from the plans of the same models. Where ours differ the test
// says by what, and docs/plan.md says why.
#include <gtest/gtest.h>

#include "runtime/plan/planner.hpp"

namespace sluice {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr double kWithin = 0.1;

double bytes_of(const RunPlan& plan, Tag tag) {
  double bytes = 0;
  for (const StateRow& p : plan.program.states.rows) {
    if (p.tier == Tier::kDevice && p.tag == tag) bytes += static_cast<double>(p.tier_bytes());
  }
  // Gradients that take the place of activations have no rows.
  for (const Buffer& buffer : plan.program.buffers) {
    if (buffer.tag == tag && tag == Tag::kGradients) bytes += static_cast<double>(buffer.bytes);
  }
  return bytes;
}

// Parameters, gradients, master weights and moments, of one rank and one parameter of the model.
double state_bytes(const RunPlan& plan) {
  double bytes = 0;
  for (const Tag tag : {Tag::kParameters, Tag::kGradients, Tag::kMaster, Tag::kMoments}) {
    bytes += bytes_of(plan, tag);
  }
  return bytes / static_cast<double>(plan.params);
}

// What Megatron and DeepSpeed keep beside that: their master weights repeat the half that is in the
// bf16 weights.
double repeated_bytes(const RunPlan& plan) {
  double bytes = 0;
  for (const StateRow& p : plan.program.states.rows) {
    if (p.array == StateArray::kRemainder) bytes += static_cast<double>(p.tier_bytes());
  }
  return bytes;
}

double state_bytes_of_others(const RunPlan& plan) {
  return state_bytes(plan) + repeated_bytes(plan) / static_cast<double>(plan.params);
}

double activations_at_peak(const RunPlan& plan) {
  return static_cast<double>(
      add_up(plan.program).by_tag[static_cast<std::size_t>(Tag::kActivations)]);
}

void expect_within(double ours, double published, const char* what) {
  EXPECT_NEAR(ours, published, kWithin * published) << what;
  std::printf("%-52s published %10.3f  ours %10.3f  %+.1f %%\n", what, published, ours,
              100 * (ours / published - 1));
}

// 24 layers of 1024, 16 heads, sequences of 1024, 50304 tokens; no dropout.
EngineOptions gpt2_345m() {
  EngineOptions options;
  options.model.layers = 24;
  options.model.hidden = 1024;
  options.model.heads = 16;
  options.model.vocab = 50304;
  options.model.seq = 1024;
  options.train.dtype = DType::kBFloat16;
  options.train.micro_batch = 8;
  options.zero.stage = 0;
  return options;
}

RunPlan planned(const EngineOptions& options, const char* profile = "a100-80g") {
  Planner planner(named_profile(profile));
  return planner.plan({options, {}});
}

// Megatron's report_theoretical_memory.
TEST(Published, BytesAParameterOfMegatron) {
  EngineOptions options = gpt2_345m();
  EXPECT_NEAR(state_bytes(planned(options)), 16, 0.01);
  expect_within(state_bytes_of_others(planned(options)), 18, "bf16, one rank: stage 0");
  for (const int d : {2, 8, 64}) {
    options.dp = d;
    options.zero.stage = 1;
    expect_within(state_bytes_of_others(planned(options)), 6 + 12.0 / d,
                  "bf16, distributed optimizer: stage 1, 6 + 12/d");
  }
  options.train.dtype = DType::kFloat32;
  expect_within(state_bytes(planned(options)), 8 + 8.0 / 64, "fp32, d = 64: stage 1, 8 + 8/d");
  options.dp = 1;
  options.zero.stage = 0;
  expect_within(state_bytes(planned(options)), 16, "fp32, one rank: stage 0");
}

// What is not on Megatron's list: gradients, and then parameters, of a rank's own share alone.
TEST(Published, BytesAParameterOfZeroTwoAndThree) {
  EngineOptions options = gpt2_345m();
  options.dp = 8;
  options.zero.stage = 2;
  expect_within(state_bytes_of_others(planned(options)), 2 + 16.0 / 8, "ZeRO-2: 2 + 16/d");
  options.zero.stage = 3;
  for (const bool on_gpu : {false, true}) {
    options.model.on_gpu = on_gpu;
    expect_within(state_bytes(planned(options)), 16.0 / 8, "ZeRO-3: 16/d");
  }
}

// Kept bytes of one layer over s b h, from plans of two depths.
double kept_of_a_layer(EngineOptions options) {
  const double deep = activations_at_peak(planned(options));
  options.model.layers /= 2;
  const double shallow = activations_at_peak(planned(options));
  const auto sbh =
      static_cast<double>(options.model.seq * options.train.micro_batch * options.model.hidden);
  return (deep - shallow) / static_cast<double>(options.model.layers) / sbh;
}

// arXiv 2205.05198: a layer keeps s b h (34 + 5 a s / h) bytes, 34 s b h of it without what
// attention makes of pairs of positions, and 2 s b h where it is recomputed.
TEST(Published, ActivationsOfALayer) {
  EngineOptions options = gpt2_345m();
  options.model.explicit_units = false;
  expect_within(kept_of_a_layer(options), 34, "34 sbh: autograd units (32: no dropout masks)");
  options.model.seq /= 2;
  expect_within(kept_of_a_layer(options), 34,
                "the same of half the sequence: nothing grows as s^2");
  options.model.seq *= 2;
  options.recompute.mode = RecomputeMode::kFull;
  expect_within(kept_of_a_layer(options), 2, "2 sbh: full recomputation");
  // Units that write out their backward keep less than the paper's layer.
  options.model.explicit_units = true;
  options.recompute.mode = RecomputeMode::kNone;
  EXPECT_NEAR(kept_of_a_layer(options), 20, 0.5);
}

// Dropout is what keeps autograd units from fused attention: then scores of all pairs are kept.
TEST(Published, PairsOfPositionsWithoutFlashAttention) {
  EngineOptions options = gpt2_345m();
  options.model.explicit_units = false;
  options.model.dropout = 0.1;
  const auto heads = static_cast<double>(options.model.heads);
  const auto seq = static_cast<double>(options.model.seq);
  const double of_pair_long = kept_of_a_layer(options);
  options.model.seq /= 2;
  const double of_pair_short = kept_of_a_layer(options);
  // By a s / h: the halves of the sequence tell the two terms apart.
  const double unit = heads * seq / static_cast<double>(options.model.hidden);
  const double pairs = (of_pair_long - of_pair_short) / (unit / 2);
  std::printf("with dropout a layer keeps s b h (%.2f + %.2f a s / h); the paper: 34 + 5 a s / h\n",
              of_pair_long - pairs * unit, pairs);
  EXPECT_NEAR(of_pair_long - pairs * unit, 34, 34 * kWithin);
  EXPECT_GE(pairs, 5 * (1 - kWithin));
  EXPECT_LE(pairs, 6.1);
}

// A 345M model on one card of 24 GB: 11,927 MB allocated at most, fp16, batch 8, full
// recomputation.
TEST(Published, Megatron345M) {
  EngineOptions options = gpt2_345m();
  options.train.dtype = DType::kFloat16;
  options.recompute.mode = RecomputeMode::kFull;
  const RunPlan plan = planned(options);
  EXPECT_NEAR(static_cast<double>(plan.params), 354.9e6, 0.1e6);
  // It has 20 bytes a parameter, fp16 gradients beside fp32 ones, where ours has 18; and it makes
  // the logits of a micro-batch: in fp16, in fp32, and their gradients in both.
  const double logits = 8.0 * 1024 * 50304 * (2 + 4 + 4);
  const double theirs =
      static_cast<double>(plan.peak(Tier::kDevice)) + logits + 2 * static_cast<double>(plan.params);
  expect_within(theirs / (1024 * 1024), 11927, "345M, batch 8, recomputed, with its logits (MB)");
  EXPECT_LT(static_cast<double>(plan.peak(Tier::kDevice)) / (1024 * 1024), 0.6 * 11927);
}

// 32 layers of hidden 4096 with 8 key heads; two samples of 8192 tokens in bf16.
EngineOptions llama_of_8192(std::int64_t ffn, std::int64_t vocab) {
  EngineOptions options;
  options.model.type = ModelType::kLlama;
  options.model.layers = 32;
  options.model.hidden = 4096;
  options.model.heads = 32;
  options.model.kv_heads = 8;
  options.model.ffn = ffn;
  options.model.vocab = vocab;
  options.model.seq = 8192;
  options.model.tie_embeddings = false;
  options.train.dtype = DType::kBFloat16;
  options.train.micro_batch = 2;
  return options;
}

// Megatron's CI run of a 6.7B on one node: tensor 4, data 2, two samples of 8192 each, distributed
// optimizer. Steady: what is allocated between steps.
TEST(Published, Megatron6700M) {
  // Its MLP has two matrices of 4 x hidden, a llama's three: as many parameters.
  EngineOptions options = llama_of_8192(10924, 131073);
  options.train.global_batch = 8;
  options.zero.stage = 1;
  options.zero.reduce_every = ReduceEvery::kStep;  // as there: two micro-batches are summed first
  options.parallel.tensor = 4;
  options.dp = 2;
  const RunPlan plan = planned(options, "h100-sxm");
  EXPECT_NEAR(static_cast<double>(plan.params), 6.72e9, 0.02e9);
  double steady = 0;
  for (const StateRow& p : plan.program.states.rows) {
    if (p.tier == Tier::kDevice) steady += static_cast<double>(p.tier_bytes());
  }
  expect_within((steady + repeated_bytes(plan)) / 1e9, 20.7, "6.7B, t4 d2: between steps (GB)");
  // 57.1 there: the fp32 logits of two samples and their gradients, and layers that keep 34 s b h.
  const double peak = static_cast<double>(plan.peak(Tier::kDevice)) / 1e9;
  std::printf("6.7B, t4 d2: peak %.1f GB, published 57.1; step %.2f s, published 1.115 s\n", peak,
              plan.time.step_s);
  EXPECT_GT(peak, steady / 1e9);
  EXPECT_LT(peak, 57.1);
}

// torchtitan: Llama-3.1-8B on 8 H100, two samples of 8192, selective recomputation: 82 GiB, 77
// compiled.
TEST(Published, TorchtitanLlama8B) {
  EngineOptions options = llama_of_8192(14336, 128256);
  options.zero.stage = 3;
  options.dp = 8;
  options.recompute.mode = RecomputeMode::kSelective;
  options.model.recompute_attention = true;
  options.model.on_gpu = true;
  const RunPlan plan = planned(options, "h100-sxm");
  EXPECT_NEAR(static_cast<double>(plan.params), 8.03e9, 0.01e9);
  // Its head makes the logits of the micro-batch, in bf16 and fp32, and their gradient in bf16;
  // ours works on a few rows at a time. Shards are 16 bytes a parameter on both sides.
  const double logits = 2.0 * 8192 * 128256 * (2 + 4 + 2);
  const double theirs = static_cast<double>(plan.peak(Tier::kDevice)) + logits;
  expect_within(theirs / kGiB, 77, "Llama-3.1-8B, compiled, with its logits (GiB)");
  EXPECT_LT(static_cast<double>(plan.peak(Tier::kDevice)) / kGiB, 77);
  EXPECT_TRUE(plan.fits());
  // 6,667 tokens a second and GPU there, on cards of 500 W. The profile is one of 700 W, which is
  // the limit of products on it.
  const double speed = plan.tokens_per_s() / 8;
  std::printf("Llama-3.1-8B: %.0f tokens a second and GPU, published 6667\n", speed);
  EXPECT_GT(speed, 6667 * (1 - kWithin));
  EXPECT_LT(speed, 6667 * 1.5);
}

}  // namespace
}  // namespace sluice
