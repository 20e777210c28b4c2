#include "runtime/plan/unit_seconds.hpp"

#include <gtest/gtest.h>

#include <span>

#include "runtime/plan/search/search.hpp"
#include "tests/runtime/plan/small.hpp"

namespace sluice {
namespace {

using testing::small_options;

// Two sizes of llama blocks and heads, of which the larger is faster.
MachineProfile with_units() {
  MachineProfile machine = named_profile("cpu");
  machine.cores = 4;
  for (const std::int64_t hidden : {32, 128}) {
    const double rate = 1e9 * static_cast<double>(hidden);
    for (const char* unit : {"llama", "head"}) {
      machine.units.push_back({unit, "bf16", hidden, rate, 2 * rate, rate / 2, rate / 4});
    }
  }
  return machine;
}

std::vector<UnitSeconds> seconds_of(const MachineProfile& machine, const EngineOptions& options) {
  return unit_seconds(machine, options, make_model_spec(options.model, options.part));
}

TEST(UnitSeconds, AreThoseMeasuredByFlopAndShareOfTheCores) {
  EngineOptions options = small_options(4);
  options.model.hidden = 128;
  const ModelSpec spec = make_model_spec(options.model);
  const std::vector<UnitSeconds> seconds = seconds_of(with_units(), options);
  ASSERT_EQ(seconds.size(), spec.units.size());
  EXPECT_FALSE(seconds.front().known);  // the embedding has no products
  const double all = 2 * spec.forward_flops_per_sample(spec.units[1]);
  const double attention = 2 * spec.attention_flops_per_sample(spec.units[1]);
  EXPECT_DOUBLE_EQ(seconds[1].forward, (all - attention) / 128e9 + attention / 64e9);
  EXPECT_DOUBLE_EQ(seconds[1].backward, 2 * ((all - attention) / 256e9 + attention / 32e9));
  const double head = 2 * spec.forward_flops_per_sample(spec.units.back());
  EXPECT_DOUBLE_EQ(seconds.back().backward, 3 * head / 128e9);
  options.dp = 2;
  EXPECT_DOUBLE_EQ(seconds_of(with_units(), options)[1].forward, seconds[1].forward / 2);
  options.model.recompute_attention = true;
  EXPECT_DOUBLE_EQ(seconds_of(with_units(), options)[1].backward,
                   (seconds[1].backward + attention / 64e9) / 2);
}

// Blocks of a GPU in 8 bits: products at the narrow rate, attention at the wide one, two operands
// rounded for each product. Other units stay priced by FLOP.
TEST(UnitSeconds, In8BitsAreThoseOfTheProfilesRates) {
  EngineOptions options = small_options(4);
  options.train.dtype = DType::kBFloat16;
  options.model.matmul = MatmulType::kFp8;
  const ModelSpec spec = make_model_spec(options.model);
  MachineProfile machine = named_profile("h100-sxm");
  machine.attention_flops = {};
  const std::vector<UnitSeconds> seconds = seconds_of(machine, options);
  ASSERT_EQ(seconds.size(), spec.units.size());
  EXPECT_FALSE(seconds.front().known || seconds.back().known);
  const double samples = static_cast<double>(options.train.micro_batch);
  const double attention = samples * spec.attention_flops_per_sample(spec.units[1]);
  const double products = samples * spec.forward_flops_per_sample(spec.units[1]) - attention;
  const double forward = (products / machine.gemm_flops.fp8 + attention / machine.gemm_flops.bf16) /
                         machine.gemm_efficiency;
  EXPECT_GT(seconds[1].forward, forward);
  // Weights of q, k, v and gate, up are priced apart. Attention's output is scanned.
  const ModelOptions& o = options.model;
  const auto tokens = samples * static_cast<double>(o.seq);
  const auto columns = static_cast<double>(6 * o.hidden + o.ffn);
  const auto weights = static_cast<double>(o.hidden * (3 * o.hidden + 3 * o.ffn));
  const double bytes = tokens * (3 * columns + 2 * static_cast<double>(o.hidden)) + 5 * weights;
  EXPECT_NEAR((seconds[1].forward - forward) * machine.device_memory_bps / bytes, 1, 1e-6);
  machine.device_memory_bps = 1e30;  // rounding takes no time
  EXPECT_NEAR(seconds_of(machine, options)[1].forward / forward, 1, 1e-9);
  EXPECT_NEAR(seconds_of(machine, options)[1].backward / forward, 2, 1e-9);
  machine.gemm_flops.fp8 = 0;
  EXPECT_TRUE(seconds_of(machine, options).empty());
  // The loss head multiplies 16 bits.
  options.model.on_gpu = true;
  options.model.matmul = MatmulType::kNative;
  const std::vector<UnitSeconds> wide = seconds_of(named_profile("h100-sxm"), options);
  options.model.matmul = MatmulType::kFp8;
  const std::vector<UnitSeconds> narrow = seconds_of(named_profile("h100-sxm"), options);
  EXPECT_EQ(narrow.back().backward, wide.back().backward);
  EXPECT_NE(narrow[1].backward, wide[1].backward);
}

struct MeasuredStep {
  const char* name;
  ModelType type;
  std::int64_t layers, hidden, heads, micro_batch, micro_batches;
  double ms;
};

// The plan's steps beside measured ones, in bf16 with 1024 tokens a sample and cuDNN's attention:
// between `least` and `most` of them.
void expect_measured(std::span<const MeasuredStep> steps, const char* profile, double least,
                     double most) {
  for (const MeasuredStep& step : steps) {
    EngineOptions options;
    ModelOptions& model = options.model;
    model.type = step.type;
    model.layers = step.layers;
    model.hidden = step.hidden;
    model.heads = step.heads;
    model.seq = 1024;
    model.vocab = 50304;
    if (step.type == ModelType::kLlama) {
      model.kv_heads = 8;
      model.ffn = 8192;
      model.vocab = 128256;
      model.tie_embeddings = true;
    }
    model.on_gpu = true;
    model.attention = AttentionBackend::kCudnn;
    options.train.dtype = DType::kBFloat16;
    options.train.micro_batch = step.micro_batch;
    options.train.global_batch = step.micro_batch * step.micro_batches;
    Planner planner(named_profile(profile));
    const double ms = 1e3 * planner.plan({options, {}}).time.step_s;
    std::printf("%-8s %-10s %2lld x %lld: measured %6.1f ms, ours %6.1f, %+5.1f %%\n", profile,
                step.name, static_cast<long long>(step.micro_batch),
                static_cast<long long>(step.micro_batches), step.ms, ms, 100 * (ms / step.ms - 1));
    EXPECT_GT(ms, least * step.ms) << step.name;
    EXPECT_LT(ms, most * step.ms) << step.name;
  }
}

// docs/benchmarks-gpu.md, "On an H100". The kernels of that day moved more bytes than today's:
// AdamW took 20 ms of a step at 1.5B, not 16, and a block's backward read the rows before the
// activation three times. So plans are up to a tenth faster.
TEST(UnitSeconds, OnAnH100AreThoseOfMeasuredSteps) {
  constexpr MeasuredStep kSteps[] = {{"124M", ModelType::kGpt2, 12, 768, 12, 16, 1, 35.6},
                                     {"345M", ModelType::kGpt2, 24, 1024, 16, 8, 1, 46.4},
                                     {"1.5B", ModelType::kGpt2, 48, 1600, 25, 4, 1, 105.9},
                                     {"1.5B", ModelType::kGpt2, 48, 1600, 25, 8, 1, 187.7},
                                     {"1.5B", ModelType::kGpt2, 48, 1600, 25, 8, 4, 708.1},
                                     {"1.5B", ModelType::kGpt2, 48, 1600, 25, 16, 2, 682.3},
                                     {"llama 1.2B", ModelType::kLlama, 16, 2048, 32, 8, 1, 126.1},
                                     {"llama 1.2B", ModelType::kLlama, 16, 2048, 32, 8, 4, 469.2}};
  expect_measured(kSteps, "h100-sxm", 0.9, 1.02);
}

// docs/benchmarks-gpu.md, "On an H200".
TEST(UnitSeconds, OnAnH200AreThoseOfMeasuredSteps) {
  constexpr MeasuredStep kSteps[] = {{"124M", ModelType::kGpt2, 12, 768, 12, 16, 1, 32.5},
                                     {"345M", ModelType::kGpt2, 24, 1024, 16, 8, 1, 41.9},
                                     {"1.5B", ModelType::kGpt2, 48, 1600, 25, 4, 1, 95.4},
                                     {"1.5B", ModelType::kGpt2, 48, 1600, 25, 8, 1, 172.8},
                                     {"1.5B", ModelType::kGpt2, 48, 1600, 25, 16, 2, 652.3},
                                     {"1.5B", ModelType::kGpt2, 48, 1600, 25, 32, 1, 645.1},
                                     {"llama 1.2B", ModelType::kLlama, 16, 2048, 32, 8, 1, 117.4},
                                     {"llama 1.2B", ModelType::kLlama, 16, 2048, 32, 8, 4, 452.0},
                                     {"llama 3.2B", ModelType::kLlama, 28, 3072, 24, 8, 1, 303.1},
                                     {"llama 3.2B", ModelType::kLlama, 28, 3072, 24, 8, 4, 1143.4}};
  expect_measured(kSteps, "h200", 0.9, 1.02);
}

// Attention of an eighth of the rate takes eight times as long, and longer rows and larger heads
// reach more of it.
TEST(UnitSeconds, OfAGpuPriceAttentionByHeadAndLength) {
  EngineOptions options;
  options.model.layers = 2;
  options.model.hidden = 1024;
  options.model.vocab = 1000;
  options.model.on_gpu = true;
  options.train.dtype = DType::kBFloat16;
  MachineProfile machine = named_profile("h100-sxm");
  // Of 128 elements half of a pair's time does not depend on the head; 350 keys more a row.
  const double long_rows = 1e14 * (1374.0 / 1024) / (4446.0 / 4096);
  machine.attention_flops.flash = {1e14 / 1.5, 1e14, long_rows};
  machine.attention_flops.cudnn = {1e14, 1.5e14, 1.5 * long_rows};
  // Seconds of attention for each FLOP, from what a slower one adds.
  const auto cost = [&](std::int64_t head_dim, std::int64_t seq) {
    options.model.heads = options.model.hidden / head_dim;
    options.model.seq = seq;
    const ModelSpec spec = make_model_spec(options.model);
    MachineProfile slow = machine;
    for (auto* rates : {&slow.attention_flops.flash, &slow.attention_flops.cudnn}) {
      if (!*rates) continue;
      **rates = {(*rates)->head_64 / 8, (*rates)->head_128 / 8, (*rates)->head_128_long / 8};
    }
    const double more =
        seconds_of(slow, options)[1].forward - seconds_of(machine, options)[1].forward;
    return more / 7 / spec.attention_flops_per_sample(spec.units[1]) /
           static_cast<double>(options.train.micro_batch);
  };
  EXPECT_NEAR(cost(64, 1024) / cost(128, 1024), 1.5, 1e-6);
  EXPECT_NEAR(cost(128, 1024) / cost(256, 1024), 1, 1e-6);
  EXPECT_NEAR(cost(64, 1024) / cost(64, 4096), (1374.0 / 1024) / (4446.0 / 4096), 1e-6);
  const double flash = cost(64, 1024);
  options.model.attention = AttentionBackend::kCudnn;
  EXPECT_NEAR(cost(64, 1024) / flash, 1 / 1.5, 1e-6);
  machine.attention_flops.cudnn.reset();  // then flash attention's
  EXPECT_NEAR(cost(64, 1024) / flash, 1, 1e-6);
  // Rates that contradict each other give no negative time.
  machine.attention_flops.flash = {3e14, 1e14, 9e14};
  EXPECT_GT(cost(32, 256), 0);
  EXPECT_GT(cost(32, 65536), 0);
  machine.attention_flops.flash = {1e13, 1e14, 9e13};
  EXPECT_GT(cost(8, 256), 0);
  EXPECT_NEAR(cost(128, 1024) / cost(128, 4096), 1, 1e-6);
  // What has no rate of its own is priced by FLOP.
  options.model.dropout = 0.1;
  EXPECT_TRUE(seconds_of(machine, options).empty());
  options.model.dropout = 0;
  options.train.dtype = DType::kFloat32;
  EXPECT_TRUE(seconds_of(machine, options).empty());
}

// Two tensor-parallel ranks have half of the heads, of the MLP and of the logits each; with
// sequence parallelism also half of the rows between.
TEST(UnitSeconds, OfAGpuAreThoseOfARanksPart) {
  EngineOptions options;
  options.model.layers = 2;
  options.model.hidden = 1024;
  options.model.heads = 16;
  options.model.vocab = 50304;
  options.model.on_gpu = true;
  options.train.dtype = DType::kBFloat16;
  const MachineProfile machine = named_profile("h100-sxm");
  const std::vector<UnitSeconds> whole = seconds_of(machine, options);
  options.part.tensor = 2;
  const std::vector<UnitSeconds> half = seconds_of(machine, options);
  options.part.sequence = true;
  const std::vector<UnitSeconds> rows = seconds_of(machine, options);
  for (const std::size_t u : {std::size_t{1}, whole.size() - 1}) {
    EXPECT_GT(half[u].backward, whole[u].backward / 2);
    EXPECT_LT(half[u].backward, whole[u].backward * 0.7);
    EXPECT_NEAR(rows[u].backward, whole[u].backward / 2, 1e-9 + whole[u].backward * 0.01);
  }
}

TEST(UnitSeconds, SizesInBetweenLieInBetween) {
  EngineOptions options = small_options(4);
  const auto cost_at = [&](std::int64_t hidden) {
    options.model.hidden = hidden;
    options.model.ffn = 3 * hidden;
    const ModelSpec spec = make_model_spec(options.model);
    return seconds_of(with_units(), options).back().forward /
           spec.forward_flops_per_sample(spec.units.back());
  };
  EXPECT_DOUBLE_EQ(cost_at(64), cost_at(32) / 2);  // the rate is in proportion to the size
  EXPECT_DOUBLE_EQ(cost_at(16), cost_at(32));
  EXPECT_DOUBLE_EQ(cost_at(512), cost_at(128));
}

TEST(UnitSeconds, WithoutAMeasurementOfTheKindThereAreNone) {
  EngineOptions options = small_options(4);
  EXPECT_TRUE(seconds_of(named_profile("cpu"), options).empty());
  options.train.dtype = DType::kFloat32;
  for (const UnitSeconds& unit : seconds_of(with_units(), options)) EXPECT_FALSE(unit.known);
}

TEST(UnitSeconds, ThreadsOfARankLoseToEachOther) {
  const MachineProfile machine = with_units();
  EXPECT_DOUBLE_EQ(cores_of_rank(machine, 1, 0.7), 4 * 0.7);
  EXPECT_DOUBLE_EQ(cores_of_rank(machine, 4, 0.7), 1);
  EXPECT_DOUBLE_EQ(cores_of_rank(machine, 8, 0.7), 0.5);
  EXPECT_DOUBLE_EQ(cores_of_rank(machine, 2, 0.7), 2 * (1 - 0.3 / 3));
}

// Forward, backward and recomputation of the program cost what the units do.
TEST(UnitSeconds, PriceTheProgram) {
  Planner planner(with_units());
  EngineOptions options = small_options(4);
  options.recompute.mode = RecomputeMode::kFull;
  const RunPlan plan = planner.plan({options, {}});
  const std::vector<UnitSeconds> units = planner.rates(options).units;
  for (std::size_t i = 0; i < plan.program.ops.size(); ++i) {
    const Op& op = plan.program.ops[i];
    const OpInterval& when = plan.time.timeline[i];
    if (op.lane != Lane::kCompute || op.unit < 1) continue;
    const UnitSeconds& unit = units[static_cast<std::size_t>(op.unit)];
    const double took = when.end - when.begin;
    if (op.kind == OpKind::kForward) {
      EXPECT_NEAR(took, unit.forward, 1e-9);
    }
    if (op.kind == OpKind::kLossHead) {
      EXPECT_NEAR(took, unit.backward, 1e-9);
    }
    if (op.kind == OpKind::kBackward) {
      EXPECT_NEAR(took, unit.backward + (op.recompute ? unit.forward : 0), 1e-9);
    }
  }
}

// One core was measured, without a wire: each exchange with tensor-parallel ranks comes on top, an
// all-reduce as two collectives.
TEST(UnitSeconds, ExchangesOfTensorRanksComeOnTop) {
  MachineProfile machine = with_units();
  machine.comm_bps = 1e6;
  Planner planner(machine);
  EngineOptions options = small_options(2);
  options.parallel.tensor = 2;
  options.recompute.mode = RecomputeMode::kFull;
  const RunPlan plan = planner.plan({options, {}});
  const Rates rates = planner.rates(planner.at_stage(options, 0));
  int compared = 0;
  for (std::size_t i = 0; i < plan.program.ops.size(); ++i) {
    const Op& op = plan.program.ops[i];
    if (op.exchanges < 0 || op.unit < 1) continue;
    const UnitSeconds& unit = rates.units[static_cast<std::size_t>(op.unit)];
    const double took = plan.time.timeline[i].end - plan.time.timeline[i].begin;
    const double computing = op.kind == OpKind::kForward    ? unit.forward
                             : op.kind == OpKind::kLossHead ? unit.backward
                                                            : unit.backward + unit.forward;
    double exchanging = static_cast<double>(sent_bytes(plan.program, op)) / 1e6;
    for (const Exchange& e : exchanges_of(plan.program, op)) {
      const int collectives = e.kind == ExchangeKind::kAllReduce ? 2 : 1;
      exchanging += collectives * static_cast<double>(e.times) * rates.comm_latency_s;
    }
    EXPECT_NEAR(took, computing + exchanging, 1e-9);
    ++compared;
  }
  EXPECT_GT(compared, 10);
}

// The bound that the search cuts by is below every step that it finds.
TEST(UnitSeconds, SuggestionsWithMeasuredUnitsAreTheFastest) {
  Planner planner(with_units());
  PlanQuestion question{small_options(2), {}};
  question.options.train.global_batch = 8;
  const SearchResult all =
      suggest(planner, question, {.most = 5, .evaluations = 100'000, .offload = true});
  ASSERT_TRUE(all.any_fits);
  for (const int stage : {0, 1, 2, 3}) {
    for (const std::int64_t micro_batch : {1, 2, 4}) {
      PlanQuestion other = question;
      other.options.zero.stage = stage;
      other.options.train.micro_batch = micro_batch;
      EXPECT_GE(planner.plan(other).time.step_s,
                all.suggestions.front().plan.time.step_s * (1 - 1e-9));
    }
  }
}

}  // namespace
}  // namespace sluice
