#include "runtime/model/model_spec.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/error.hpp"
#include "base/index.hpp"
#include "runtime/model/blocks/llama_params.hpp"
#include "runtime/model/frozen_groups.hpp"
#include "runtime/model/model_slices.hpp"

namespace sluice {
namespace {

// How tensor-parallel ranks share a parameter: by the meaning of its rows or columns.
enum class Cut { kWhole, kHeads, kKvHeads, kQkv, kFfn, kWords, kHeadColumns, kFfnColumns };

struct WholeParam {
  ParamSpec spec;
  Cut cut = Cut::kWhole;
};

WholeParam matrix(std::string name, std::int64_t out, std::int64_t in, double init_std, Cut cut) {
  return {{{std::move(name), {out, in}, true}, Init::kNormal, init_std}, cut};
}

WholeParam vector_of(std::string name, std::int64_t n, Init init, Cut cut = Cut::kWhole) {
  return {{{std::move(name), {n}, false}, init, 0}, cut};
}

// The projections into the residual stream: their sum over the depth keeps the stream's variance.
double residual_std(const ModelOptions& o) {
  return o.init_std / std::sqrt(2.0 * static_cast<double>(o.layers));
}

// In the order Gpt2Block takes them.
std::vector<WholeParam> gpt2_block(const ModelOptions& o, std::int64_t layer) {
  const std::string prefix = "h." + std::to_string(layer) + ".";
  return {
      vector_of(prefix + "ln_1.weight", o.hidden, Init::kOnes),
      vector_of(prefix + "ln_1.bias", o.hidden, Init::kZeros),
      matrix(prefix + "attn.c_attn.weight", 3 * o.hidden, o.hidden, o.init_std, Cut::kQkv),
      vector_of(prefix + "attn.c_attn.bias", 3 * o.hidden, Init::kZeros, Cut::kQkv),
      matrix(prefix + "attn.c_proj.weight", o.hidden, o.hidden, residual_std(o), Cut::kHeadColumns),
      vector_of(prefix + "attn.c_proj.bias", o.hidden, Init::kZeros),
      vector_of(prefix + "ln_2.weight", o.hidden, Init::kOnes),
      vector_of(prefix + "ln_2.bias", o.hidden, Init::kZeros),
      matrix(prefix + "mlp.c_fc.weight", o.ffn, o.hidden, o.init_std, Cut::kFfn),
      vector_of(prefix + "mlp.c_fc.bias", o.ffn, Init::kZeros, Cut::kFfn),
      matrix(prefix + "mlp.c_proj.weight", o.hidden, o.ffn, residual_std(o), Cut::kFfnColumns),
      vector_of(prefix + "mlp.c_proj.bias", o.hidden, Init::kZeros)};
}

std::string bias_of(const std::string& weight) {
  return weight.substr(0, weight.size() - std::string("weight").size()) + "bias";
}

// In the order of llama_block_params().
std::vector<WholeParam> llama_block(const ModelOptions& o, std::int64_t layer) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const std::int64_t q = o.heads * o.head_dim;
  const std::int64_t kv = o.kv_heads * o.head_dim;
  std::vector<WholeParam> params;
  const auto add_norm = [&](const std::string& name) {
    params.push_back(vector_of(prefix + name, o.hidden, Init::kOnes));
  };
  const auto add_bias = [&](const ParamSpec& weight, Cut cut) {
    params.push_back(
        vector_of(bias_of(weight.tensor.name), weight.tensor.shape[0], Init::kZeros, cut));
  };
  const auto add = [&](const std::string& name, std::int64_t out, std::int64_t in, Cut cut) {
    const bool into_stream = cut == Cut::kHeadColumns || cut == Cut::kFfnColumns;
    params.push_back(
        matrix(prefix + name, out, in, into_stream ? residual_std(o) : o.init_std, cut));
  };
  add_norm("input_layernorm.weight");
  add("self_attn.q_proj.weight", q, o.hidden, Cut::kHeads);
  add("self_attn.k_proj.weight", kv, o.hidden, Cut::kKvHeads);
  add("self_attn.v_proj.weight", kv, o.hidden, Cut::kKvHeads);
  if (o.attention_bias != AttentionBias::kNone) {
    for (std::size_t i : {1U, 2U, 3U}) add_bias(ParamSpec(params[i].spec), params[i].cut);
  }
  add("self_attn.o_proj.weight", o.hidden, q, Cut::kHeadColumns);
  if (o.attention_bias == AttentionBias::kQkvo) {
    add_bias(ParamSpec(params.back().spec), Cut::kWhole);
  }
  add_norm("post_attention_layernorm.weight");
  add("mlp.gate_proj.weight", o.ffn, o.hidden, Cut::kFfn);
  add("mlp.up_proj.weight", o.ffn, o.hidden, Cut::kFfn);
  add("mlp.down_proj.weight", o.hidden, o.ffn, Cut::kFfnColumns);
  return params;
}

Slice times(const Slice& slice, std::int64_t n) { return {slice.first * n, slice.count * n}; }

// The rank's rows, runs one after another, or its columns.
struct CutRanges {
  std::vector<Slice> rows;
  std::vector<Slice> columns;
};

CutRanges ranges_of(const ModelOptions& o, const ModelSlices& slices, Cut cut) {
  const bool gpt2 = o.type == ModelType::kGpt2;
  const Slice q = times(slices.heads, gpt2 ? o.hidden / o.heads : o.head_dim);
  switch (cut) {
    case Cut::kWhole:
      return {};
    case Cut::kHeads:
      return {{q}, {}};
    case Cut::kKvHeads:
      return {{times(slices.kv_heads, o.head_dim)}, {}};
    case Cut::kQkv:
      return {{q, {o.hidden + q.first, q.count}, {2 * o.hidden + q.first, q.count}}, {}};
    case Cut::kFfn:
      return {{slices.ffn}, {}};
    case Cut::kWords:
      return {{slices.vocab}, {}};
    case Cut::kHeadColumns:
      return {{}, {q}};
    case Cut::kFfnColumns:
      return {{}, {slices.ffn}};
  }
  return {};
}

ParamSpec part_of(const WholeParam& whole, const CutRanges& cut) {
  ParamSpec part = whole.spec;
  if (cut.rows.empty() && cut.columns.empty()) return part;
  std::vector<std::int64_t>& shape = part.tensor.shape;
  part.whole_shape = shape;
  const std::size_t dim = cut.rows.empty() ? 1 : 0;
  shape[dim] = 0;
  for (const Slice& slice : dim == 0 ? cut.rows : cut.columns) {
    ParamBox box{std::vector<std::int64_t>(shape.size(), 0), part.whole_shape};
    box.offset[dim] = slice.first;
    box.length[dim] = slice.count;
    shape[dim] += slice.count;
    part.boxes.push_back(std::move(box));
  }
  return part;
}

// Writes the groups and units of a part, one unit after another.
class SpecWriter {
 public:
  SpecWriter(const ModelOptions& options, const ModelPart& part)
      : spec_{options, {}, {}, part},
        o_(spec_.options),
        slices_(model_slices(options, part)),
        gpt2_(options.type == ModelType::kGpt2) {}

  ModelSpec write() {
    const int last = unit_count(o_) - 1;
    for (const int unit : units_of(o_, spec_.part)) {
      if (unit == 0) {
        add_embedding();
      } else if (unit == last) {
        add_head();
      } else {
        add_block(unit - 1);
      }
    }
    return std::move(spec_);
  }

 private:
  enum class Holders { kRank, kSomeRanks, kAllRanks };

  [[nodiscard]] Holders holders_of(Cut cut) const {
    if (spec_.part.tensor == 1) return Holders::kRank;
    if (cut == Cut::kWhole) return Holders::kAllRanks;
    return cut == Cut::kKvHeads && slices_.kv_replicas > 1 ? Holders::kSomeRanks : Holders::kRank;
  }

  [[nodiscard]] ParamGroup empty_group(const std::string& name, Holders holders) const {
    const ModelPart& part = spec_.part;
    if (holders == Holders::kRank) return {name, {}};
    if (holders == Holders::kSomeRanks) {  // other query heads use them on each rank
      return {name + ".kv",        {},   Replicas::kTensor,
              slices_.kv_replicas, true, part.tensor_rank % slices_.kv_replicas == 0};
    }
    return {name + ".replicated", {}, Replicas::kTensor, part.tensor, part.sequence,
            part.tensor_rank == 0};
  }

  // Groups of the unit's own, one for each set of ranks that have them.
  void add_params(UnitSpec& unit, const std::string& name, const std::vector<WholeParam>& params) {
    std::vector<ParamRef> refs(params.size());
    for (const Holders holders : {Holders::kRank, Holders::kSomeRanks, Holders::kAllRanks}) {
      ParamGroup group = empty_group(name, holders);
      for (std::size_t i = 0; i < params.size(); ++i) {
        if (holders_of(params[i].cut) != holders) continue;
        refs[i] = {static_cast<int>(spec_.groups.size()), static_cast<int>(group.params.size())};
        const Cut cut = spec_.part.tensor == 1 ? Cut::kWhole : params[i].cut;
        group.params.push_back(part_of(params[i], ranges_of(o_, slices_, cut)));
      }
      if (!group.params.empty()) spec_.groups.push_back(std::move(group));
    }
    unit.params.insert(unit.params.end(), refs.begin(), refs.end());
  }

  // The token table. A tied one is also read by the last unit.
  void add_table(UnitSpec& unit) {
    if (table_ < 0) {
      table_ = static_cast<int>(spec_.groups.size());
      UnitSpec owner;
      add_params(owner, gpt2_ ? "wte" : "embed_tokens",
                 {matrix(gpt2_ ? "wte.weight" : "model.embed_tokens.weight", o_.vocab, o_.hidden,
                         o_.init_std, Cut::kWords)});
      if (o_.tie_embeddings && spec_.part.stages > 1) {
        ParamGroup& group = spec_.groups.back();
        group.replicas = Replicas::kTied;
        group.replica_ranks = 2;
        group.sums_replicas = true;
        group.counted = spec_.part.begins_model();
      }
    }
    unit.params.push_back({table_, 0});
  }

  void add_embedding() {
    UnitSpec unit{"embedding", UnitKind::kEmbedding, {}};
    add_table(unit);
    if (gpt2_) {
      add_params(unit, "wpe", {matrix("wpe.weight", o_.seq, o_.hidden, o_.init_std, Cut::kWhole)});
    }
    spec_.units.push_back(std::move(unit));
  }

  void add_block(std::int64_t layer) {
    UnitSpec unit{(gpt2_ ? "h." : "layers.") + std::to_string(layer), UnitKind::kBlock, {}};
    add_params(unit, unit.name, gpt2_ ? gpt2_block(o_, layer) : llama_block(o_, layer));
    spec_.units.push_back(std::move(unit));
  }

  void add_head() {
    UnitSpec unit{"head", UnitKind::kLossHead, {}};
    std::vector<WholeParam> params;
    if (gpt2_) {
      params = {vector_of("ln_f.weight", o_.hidden, Init::kOnes),
                vector_of("ln_f.bias", o_.hidden, Init::kZeros)};
    } else {
      params = {vector_of("model.norm.weight", o_.hidden, Init::kOnes)};
    }
    if (!o_.tie_embeddings) {
      params.push_back(matrix("lm_head.weight", o_.vocab, o_.hidden, o_.init_std, Cut::kWords));
    }
    add_params(unit, unit.name, params);
    if (o_.tie_embeddings) add_table(unit);
    spec_.units.push_back(std::move(unit));
  }

  ModelSpec spec_;
  const ModelOptions& o_;
  const ModelSlices slices_;
  const bool gpt2_;
  int table_ = -1;  // its group, once it is there
};

std::int64_t elems_of(const ParamGroup& group) {
  std::int64_t elems = 0;
  for (const ParamSpec& param : group.params) {
    const std::vector<std::int64_t>& shape = param.tensor.shape;
    elems += std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  }
  return elems;
}

bool has_window(const ModelOptions& o) { return o.sliding_window > 0 && o.sliding_window < o.seq; }

// Pairs of a query and a key it sees, to the leading order.
double attention_pairs(const ModelOptions& o) {
  const auto seq = static_cast<double>(o.seq);
  if (!has_window(o)) return seq * seq / 2;
  const auto window = static_cast<double>(o.sliding_window);
  return window * seq - window * window / 2;
}

}  // namespace

std::int64_t ModelSpec::param_count() const {
  return std::accumulate(groups.begin(), groups.end(), std::int64_t{0},
                         [](std::int64_t sum, const ParamGroup& g) { return sum + elems_of(g); });
}

std::int64_t ModelSpec::frozen_param_count() const {
  std::int64_t count = 0;
  for (const ParamGroup& group : groups) count += group.frozen ? elems_of(group) : 0;
  return count;
}

namespace {

// Products with the unit's matrices.
double product_flops(const ModelSpec& spec, const UnitSpec& unit, bool with_frozen) {
  const auto seq = static_cast<double>(spec.options.seq);
  double flops = 0;
  for (const ParamRef& ref : unit.params) {
    const ParamGroup& group = nth(spec.groups, ref.group);
    const auto& shape = nth(group.params, ref.index).tensor.shape;
    if (shape.size() == 2 && (with_frozen || !group.frozen)) {
      flops += 2 * seq * static_cast<double>(shape[0]) * static_cast<double>(shape[1]);
    }
  }
  return flops;
}

}  // namespace

double ModelSpec::forward_flops_per_sample(const UnitSpec& unit) const {
  if (unit.kind == UnitKind::kEmbedding) return 0;
  return product_flops(*this, unit, true) + attention_flops_per_sample(unit);
}

double ModelSpec::weight_flops_per_sample(const UnitSpec& unit) const {
  if (unit.kind == UnitKind::kEmbedding) return 0;
  return product_flops(*this, unit, false) + attention_flops_per_sample(unit);
}

double ModelSpec::attention_flops_per_sample(const UnitSpec& unit) const {
  if (unit.kind != UnitKind::kBlock) return 0;
  return 2 * 2 * attention_pairs(options) *
         static_cast<double>(model_slices(options, part).heads.count) *
         static_cast<double>(options.head_dim);
}

std::int64_t ModelSpec::constant_bytes() const {
  if (options.type == ModelType::kGpt2) return 0;
  const bool none = std::none_of(units.begin(), units.end(), [](const UnitSpec& unit) {
    return unit.kind == UnitKind::kBlock;
  });
  if (none) return 0;
  const std::int64_t tables = 2 * options.seq * (options.head_dim / 2) * 4;
  return tables + (has_window(options) ? window_mask_bytes(options.sliding_window) : 0);
}

LlamaBlockParams llama_block_params(const ModelOptions& o) {
  LlamaBlockParams at;
  int next = at.v + 1;
  if (o.attention_bias != AttentionBias::kNone) {
    at.q_bias = next++;
    at.k_bias = next++;
    at.v_bias = next++;
  }
  at.o = next++;
  if (o.attention_bias == AttentionBias::kQkvo) at.o_bias = next++;
  at.post_norm = next++;
  at.gate = next++;
  at.up = next++;
  at.down = next++;
  at.count = next;
  return at;
}

ModelSpec make_model_spec(const ModelOptions& given, const ModelPart& part) {
  const ModelOptions options = with_defaults(given);
  check(options.vocab > 0, "vocab is known before the model is made");
  ModelSpec spec = SpecWriter(options, part).write();
  if (options.freeze.empty()) return spec;
  const bool whole = part.tensor == 1 && part.stages == 1;
  check_freeze(options.freeze, whole ? spec : SpecWriter(options, {}).write());
  freeze_groups(spec);
  return spec;
}

std::vector<bool> frozen_params(const ModelSpec& spec, std::size_t unit) {
  std::vector<bool> frozen;
  for (const ParamRef& ref : spec.units[unit].params) {
    frozen.push_back(nth(spec.groups, ref.group).frozen);
  }
  return frozen;
}

}  // namespace sluice
