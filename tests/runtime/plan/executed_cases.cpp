#include "tests/runtime/plan/executed_cases.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <utility>

#include "runtime/plan/search/settings.hpp"

namespace sluice::testing {
namespace {

struct Value {
  const char* name;
  std::function<void(EngineOptions&)> set;
};
using Dimension = std::vector<Value>;

// Odd sizes on purpose: 7 layers, a vocabulary that nothing divides, sequences of 1000 and 37.
Dimension models() {
  const auto model = [](const ModelOptions& m) { return [m](EngineOptions& o) { o.model = m; }; };
  const ModelOptions gpt2{.layers = 7, .hidden = 48, .heads = 3, .vocab = 131, .seq = 37};
  ModelOptions large_vocab{.layers = 2, .hidden = 32, .heads = 2, .vocab = 50257, .seq = 24};
  ModelOptions long_seq{.layers = 2, .hidden = 32, .heads = 2, .vocab = 61, .seq = 1000};
  ModelOptions dropping = gpt2;
  dropping.layers = 3;
  dropping.dropout = 0.1;
  ModelOptions autograd = gpt2;
  autograd.layers = 3;
  autograd.explicit_units = false;
  ModelOptions llama{.type = ModelType::kLlama,
                     .layers = 3,
                     .hidden = 64,
                     .heads = 4,
                     .kv_heads = 2,
                     .vocab = 509,
                     .seq = 40,
                     .tie_embeddings = false};
  ModelOptions long_llama = llama;
  long_llama.layers = 2;
  long_llama.seq = 1000;
  ModelOptions autograd_llama = llama;
  autograd_llama.explicit_units = false;
  ModelOptions mistral = llama;
  mistral.type = ModelType::kMistral;
  mistral.sliding_window = 16;
  ModelOptions qwen2 = llama;
  qwen2.type = ModelType::kQwen2;
  qwen2.layers = 7;
  qwen2.vocab = 1031;
  qwen2.tie_embeddings = true;
  return {{"gpt2", model(gpt2)},
          {"gpt2 vocab 50257", model(large_vocab)},
          {"gpt2 seq 1000", model(long_seq)},
          {"gpt2 dropout", model(dropping)},
          {"gpt2 autograd", model(autograd)},
          {"llama", model(llama)},
          {"llama seq 1000", model(long_llama)},
          {"llama autograd", model(autograd_llama)},
          {"mistral window", model(mistral)},
          {"qwen2 tied", model(qwen2)}};
}

// Embedding and first block, which then have no backward; or kinds of parameters of all blocks.
Dimension frozen_parts() {
  const auto freeze = [](const std::vector<std::string>& gpt2,
                         const std::vector<std::string>& llama) {
    return
        [=](EngineOptions& o) { o.model.freeze = o.model.type == ModelType::kGpt2 ? gpt2 : llama; };
  };
  return {{"trains all", freeze({}, {})},
          {"frozen start", freeze({"wte", "wpe", "h.0"}, {"model.embed_tokens", "model.layers.0"})},
          {"frozen kinds",
           freeze({"h.*.attn", "ln_f.bias"}, {"model.layers.*.mlp", "model.layers.*.*.k_proj"})}};
}

Dimension precisions() {
  const auto type = [](DType dtype, MatmulType matmul) {
    return [dtype, matmul](EngineOptions& o) {
      o.train.dtype = dtype;
      o.model.matmul = matmul;
    };
  };
  return {{"fp32", type(DType::kFloat32, MatmulType::kNative)},
          {"bf16", type(DType::kBFloat16, MatmulType::kNative)},
          {"bf16 in fp32", type(DType::kBFloat16, MatmulType::kFp32)},
          {"fp16", type(DType::kFloat16, MatmulType::kNative)}};
}

Dimension stages() {
  Dimension stages;
  for (const char* name : {"stage 0", "stage 1", "stage 2", "stage 3"}) {
    const int stage = name[6] - '0';
    stages.push_back({name, [stage](EngineOptions& o) { o.zero.stage = stage; }});
  }
  return stages;
}

Dimension recomputations() {
  const auto mode = [](RecomputeMode m) {
    return [m](EngineOptions& o) {
      o.recompute.mode = m;
      o.model.recompute_attention = m == RecomputeMode::kSelective;
    };
  };
  return {{"keeps all", mode(RecomputeMode::kNone)},
          {"selective", mode(RecomputeMode::kSelective)},
          {"full", mode(RecomputeMode::kFull)}};
}

// States, gradients and parameters.
Dimension placements() {
  const auto on = [](Tier optimizer, Tier parameters, Tier gradients,
                     DType gradients_dtype = DType::kFloat32) {
    return [=](EngineOptions& o) {
      o.offload.gradients_dtype = gradients_dtype;
      o.offload.optimizer = optimizer;
      o.offload.parameters = parameters;
      o.offload.gradients = gradients;
    };
  };
  constexpr Tier kD = Tier::kDevice;
  constexpr Tier kH = Tier::kHost;
  constexpr Tier kN = Tier::kNvme;
  return {{"all on device", on(kD, kD, kD)},
          {"all on device, 16-bit moments",
           [](EngineOptions& o) { o.offload.states_dtype = DType::kBFloat16; }},
          {"all on device, 16-bit gradients", on(kD, kD, kD, DType::kBFloat16)},
          {"states host", on(kH, kD, kD)},
          {"states nvme", on(kN, kD, kD)},
          {"states, gradients host", on(kH, kD, kH)},
          {"states, gradients nvme", on(kN, kD, kN)},
          {"states nvme, gradients host", on(kN, kD, kH)},
          {"states, parameters host", on(kH, kH, kD)},
          {"states host, parameters nvme", on(kH, kN, kD)},
          {"all host", on(kH, kH, kH)},
          {"all nvme", on(kN, kN, kN)},
          {"all host, 16-bit gradients", on(kH, kH, kH, DType::kBFloat16)},
          {"states, gradients nvme, 16-bit gradients", on(kN, kD, kN, DType::kBFloat16)},
          {"states nvme, half on the host",
           [](EngineOptions& o) {
             o.offload.optimizer = Tier::kNvme;
             o.offload.host_fraction = 0.5;
           }},
          {"all nvme, a third of the states on the host",
           [](EngineOptions& o) {
             o.offload.optimizer = o.offload.parameters = o.offload.gradients = Tier::kNvme;
             o.offload.host_fraction = 0.34;
           }},
          {"states in part, 16 bits", [](EngineOptions& o) {
             o.offload.optimizer = Tier::kNvme;
             o.offload.device_fraction = 0.3;
             o.offload.states_dtype = DType::kBFloat16;
           }}};
}

Dimension activations() {
  const auto on = [](Tier tier) {
    return [tier](EngineOptions& o) { o.offload.activations = tier; };
  };
  return {{"activations device", on(Tier::kDevice)},
          {"activations host", on(Tier::kHost)},
          {"activations nvme", on(Tier::kNvme)}};
}

// The global batch holds micro-batches until the world is known.
Dimension accumulations() {
  const auto count = [](int n, AccumulationOrder order, ReduceEvery reduce) {
    return [=](EngineOptions& o) {
      o.train.global_batch = n;
      o.train.accumulation_order = order;
      o.zero.reduce_every = reduce;
    };
  };
  constexpr auto kMicro = AccumulationOrder::kMicro;
  constexpr auto kLayer = AccumulationOrder::kLayer;
  return {{"1 micro-batch", count(1, kMicro, ReduceEvery::kMicroBatch)},
          {"3 in micro order", count(3, kMicro, ReduceEvery::kMicroBatch)},
          {"3 in layer order", count(3, kLayer, ReduceEvery::kMicroBatch)},
          {"2 reduced once", count(2, kMicro, ReduceEvery::kStep)}};
}

Dimension micro_batches() {
  Dimension sizes;
  for (const char* name : {"1 sample", "2 samples", "5 samples"}) {
    const std::int64_t size = name[0] - '0';
    sizes.push_back({name, [size](EngineOptions& o) { o.train.micro_batch = size; }});
  }
  return sizes;
}

Dimension worlds() {
  Dimension sizes;
  for (const char* name : {"dp 1", "dp 2", "dp 3"}) {
    const int size = name[3] - '0';
    sizes.push_back({name, [size](EngineOptions& o) { o.dp = size; }});
  }
  return sizes;
}

Dimension knobs() {
  return {{"small buckets, speculating where states are on NVMe",
           [](EngineOptions& o) {
             o.zero.bucket_bytes = 16 * 1024;
             o.offload.speculate = Speculation::kAuto;
           }},
          {"one bucket, prefetch 2",
           [](EngineOptions& o) {
             o.zero.bucket_bytes = 64 * 1024 * 1024;
             o.zero.prefetch_units = 2;
           }},
          {"prefetch 0, small groups stay", [](EngineOptions& o) {
             o.zero.bucket_bytes = 100'000;
             o.zero.prefetch_units = 0;
             o.zero.persist_below = 5000;
           }}};
}

bool is_valid(const EngineOptions& o) {
  const OffloadOptions& away = o.offload;
  if (away.parameters != Tier::kDevice && o.zero.stage < 3) return false;
  if (away.gradients != Tier::kDevice && o.zero.stage < 2) return false;
  if (!keeps_what_it_sums(o) || !stores_complete_gradients(o)) return false;
  if (o.model.explicit_units) return true;
  return o.recompute.mode != RecomputeMode::kSelective && o.model.matmul == MatmulType::kNative &&
         (away.activations == Tier::kDevice || o.recompute.mode == RecomputeMode::kFull);
}

class Cases {
 public:
  std::vector<ExecutedCase> all_pairs() {
    std::vector<ExecutedCase> cases;
    int in_vain = 0;
    while (in_vain < 3) {
      ExecutedCase best;
      std::size_t most = 0;
      for (int draw = 0; draw < 400; ++draw) {
        ExecutedCase candidate = random_case();
        const std::size_t fresh = pairs_not_seen(candidate.values);
        if (fresh > most) {
          most = fresh;
          best = std::move(candidate);
        }
      }
      in_vain = most == 0 ? in_vain + 1 : 0;
      if (most == 0) continue;
      see(best.values);
      cases.push_back(std::move(best));
    }
    return cases;
  }

 private:
  using Pair = std::pair<std::pair<int, int>, std::pair<int, int>>;

  static std::vector<Pair> pairs_of(const std::vector<int>& values) {
    std::vector<Pair> pairs;
    for (int a = 0; a < static_cast<int>(values.size()); ++a) {
      for (int b = 0; b < a; ++b) {
        pairs.push_back(
            {{a, values[static_cast<std::size_t>(a)]}, {b, values[static_cast<std::size_t>(b)]}});
      }
    }
    return pairs;
  }
  std::size_t pairs_not_seen(const std::vector<int>& values) const {
    std::size_t count = 0;
    for (const Pair& pair : pairs_of(values)) count += seen_.contains(pair) ? 0U : 1U;
    return count;
  }
  void see(const std::vector<int>& values) {
    for (const Pair& pair : pairs_of(values)) seen_.insert(pair);
  }

  std::uint64_t draw() {  // Knuth's MMIX generator
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return state_ >> 33;
  }
  ExecutedCase random_case() {
    while (true) {
      ExecutedCase drawn;
      EngineOptions& options = drawn.options;
      options.train.seed = 7;
      options.optimizer.lr = 1e-3;
      options.offload.chunk_bytes = 16 * 1024;  // several chunks a group
      options.offload.chunks = 2;
      for (const Dimension& dimension : dimensions_) {
        const auto value = static_cast<std::size_t>(draw() % dimension.size());
        drawn.values.push_back(static_cast<int>(value));
        dimension[value].set(options);
        drawn.name += (drawn.name.empty() ? "" : ", ") + std::string(dimension[value].name);
      }
      options.train.global_batch *= options.train.micro_batch * options.dp;
      if (is_valid(options)) return drawn;
    }
  }

  // Models before what changes them.
  const std::vector<Dimension> dimensions_{
      models(),      frozen_parts(),  precisions(),    stages(), recomputations(), placements(),
      activations(), accumulations(), micro_batches(), worlds(), knobs()};
  std::set<Pair> seen_;
  std::uint64_t state_ = 2026;
};

}  // namespace

std::vector<ExecutedCase> executed_cases() { return Cases().all_pairs(); }

std::vector<ExecutedCase> sample_of(const std::vector<ExecutedCase>& cases) {
  using Seen = std::set<std::pair<std::size_t, int>>;
  const auto fresh = [](const ExecutedCase& c, const Seen& seen) {
    std::size_t count = 0;
    for (std::size_t d = 0; d < c.values.size(); ++d)
      count += seen.contains({d, c.values[d]}) ? 0U : 1U;
    return count;
  };
  Seen seen;
  std::vector<ExecutedCase> sample;
  while (true) {
    const auto best = std::max_element(cases.begin(), cases.end(),
                                       [&](const ExecutedCase& a, const ExecutedCase& b) {
                                         return fresh(a, seen) < fresh(b, seen);
                                       });
    if (best == cases.end() || fresh(*best, seen) == 0) return sample;
    for (std::size_t d = 0; d < best->values.size(); ++d) seen.insert({d, best->values[d]});
    sample.push_back(*best);
  }
}

}  // namespace sluice::testing
