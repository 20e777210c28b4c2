#include "runtime/checkpoint/import/import_layout.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/hf/hf_names.hpp"

namespace sluice {
namespace {

constexpr char kTable[] = "embedding.word_embeddings.weight";
constexpr char kHead[] = "output_layer.weight";
constexpr char kPositionTable[] = "embedding.position_embeddings.weight";

// A run along the first dimension of a parameter: rows of a matrix, elements of a vector.
struct Run {
  std::int64_t at = 0, length = 0;
  int part = 0;
  std::int64_t from = 0;
};

class Planner {
 public:
  Planner(const ModelSpec& spec, int parts, std::int64_t table_rows)
      : o_(spec.options), parts_(parts), table_rows_(table_rows) {}

  ImportLayout megatron(const ModelSpec& spec) {
    for (const auto& [what, count] :
         {std::pair{"heads", o_.heads}, {"kv_heads", o_.kv_heads}, {"ffn", o_.ffn}}) {
      if (count % parts_ == 0) continue;
      throw ConfigError(
          format_text("model.{}: {} do not divide by the checkpoint's {} tensor-parallel ranks",
                      what, count, parts_));
    }
    for (const ParamGroup& group : spec.groups) {
      for (const ParamSpec& param : group.params) megatron_param(param);
    }
    return std::move(layout_);
  }

  ImportLayout hugging_face(const ModelSpec& spec) {
    const std::vector<HfPlacement> placements = hf_placements(spec);
    std::size_t next = 0;
    for (const ParamGroup& group : spec.groups) {
      for (const ParamSpec& param : group.params) {
        const HfPlacement& placement = placements[next++];
        begin(param);
        if (placement.rows == HfRows::kVocabulary) {
          vocabulary(placement.tensor);
          continue;
        }
        need(0, placement.tensor, placement.stored_shape(),
             placement.rows == HfRows::kPositions ? ImportRows::kPositions : ImportRows::kExact);
        whole(placement.tensor, placement.transposed);
      }
    }
    return std::move(layout_);
  }

 private:
  [[nodiscard]] ImportParam& param() { return layout_.params.back(); }

  void begin(const ParamSpec& spec) {
    layout_.params.push_back({spec.tensor.name, spec.tensor.shape, spec.init_std, {}});
  }
  void need(int part, const std::string& tensor, std::vector<std::int64_t> shape,
            ImportRows table = ImportRows::kExact) {
    if (!needed_.insert({part, tensor}).second) return;
    layout_.tensors.push_back({part, tensor, std::move(shape), table});
  }
  void whole(const std::string& tensor, bool transposed = false) {
    const ImportParam& p = param();
    param().blocks.push_back({0, p.rows(), 0, p.cols(), 0, tensor, 0, 0, transposed});
  }
  // Adds the blocks of a tensor that is cut or stacked along its first dimension.
  void runs(const std::string& tensor, const std::vector<Run>& of) {
    const bool matrix = param().shape.size() == 2;
    const std::int64_t cols = param().cols();
    for (const Run& r : of) {
      if (matrix) {
        param().blocks.push_back({r.at, r.length, 0, cols, r.part, tensor, r.from, 0, false});
      } else {
        param().blocks.push_back({0, 1, r.at, r.length, r.part, tensor, 0, r.from, false});
      }
    }
  }
  void need_rows(const std::string& tensor, std::int64_t rows) {  // on each part
    std::vector<std::int64_t> shape{rows};
    if (param().shape.size() == 2) shape.push_back(param().shape[1]);
    for (int part = 0; part < parts_; ++part) need(part, tensor, shape);
  }

  void vocabulary(const std::string& tensor) {
    const std::int64_t rows = param().rows();
    std::vector<Run> of;
    for (int part = 0; part < parts_; ++part) {
      const std::int64_t at = part * table_rows_;
      need(part, tensor, {table_rows_, param().cols()}, ImportRows::kVocabulary);
      if (at < rows) of.push_back({at, std::min(table_rows_, rows - at), part, 0});
    }
    runs(tensor, of);
  }
  // Appends the runs of `heads` heads of one kind (q, k or v). These heads begin at head `first` of
  // the stack of each query group.
  void stacked(const std::string& tensor, std::int64_t at, std::int64_t heads, std::int64_t first,
               std::vector<Run>& of) {
    const std::int64_t groups = o_.kv_heads / parts_;  // per part
    const std::int64_t in_group = o_.heads / o_.kv_heads + 2;
    const std::int64_t each = heads / o_.kv_heads;  // heads of this kind in a group
    need_rows(tensor, groups * in_group * o_.head_dim);
    for (int part = 0; part < parts_; ++part) {
      for (std::int64_t g = 0; g < groups; ++g) {
        of.push_back({at + (part * groups + g) * each * o_.head_dim, each * o_.head_dim, part,
                      (g * in_group + first) * o_.head_dim});
      }
    }
  }
  void cut_rows(const std::string& tensor, std::int64_t before, std::int64_t stack) {
    const std::int64_t rows = param().shape[0] / parts_;
    need_rows(tensor, rows * stack);
    std::vector<Run> of;
    for (int part = 0; part < parts_; ++part)
      of.push_back({part * rows, rows, part, before * rows});
    runs(tensor, of);
  }
  void cut_cols(const std::string& tensor) {
    const std::int64_t cols = param().cols() / parts_;
    for (int part = 0; part < parts_; ++part) {
      need(part, tensor, {param().rows(), cols});
      param().blocks.push_back({0, param().rows(), part * cols, cols, part, tensor, 0, 0, false});
    }
  }
  void replicated(const std::string& tensor, ImportRows table = ImportRows::kExact) {
    for (int part = 0; part < parts_; ++part) need(part, tensor, param().shape, table);
    whole(tensor);
  }

  void megatron_param(const ParamSpec& spec);
  bool megatron_block_param(const std::string& in_block, const std::string& block);

  ModelOptions o_;
  int parts_;
  std::int64_t table_rows_;
  ImportLayout layout_;
  std::set<std::pair<int, std::string>> needed_;
};

void Planner::megatron_param(const ParamSpec& spec) {
  begin(spec);
  const std::string& name = spec.tensor.name;
  if (name == "wte.weight" || name == "model.embed_tokens.weight") {
    return vocabulary(kTable);
  }
  if (name == "lm_head.weight") return vocabulary(kHead);
  if (name == "wpe.weight") {
    return replicated(kPositionTable, ImportRows::kPositions);
  }
  const std::size_t dot = name.rfind('.');
  if (name.starts_with("ln_f.")) return replicated("decoder.final_layernorm" + name.substr(dot));
  if (name == "model.norm.weight") return replicated("decoder.final_layernorm.weight");
  const std::string start = o_.type == ModelType::kGpt2 ? "h." : "model.layers.";
  const std::size_t end = name.find('.', start.size());
  check(name.starts_with(start) && end != std::string::npos, "a parameter of a block: " + name);
  const std::string block = "decoder.layers." + name.substr(start.size(), end - start.size()) + ".";
  check(megatron_block_param(name.substr(end + 1), block), "a parameter of a block: " + name);
}

bool Planner::megatron_block_param(const std::string& in_block, const std::string& block) {
  const std::size_t dot = in_block.rfind('.');
  const std::string layer = in_block.substr(0, dot);
  const std::string what = in_block.substr(dot);  // ".weight", ".bias"
  const std::string qkv = block + "self_attention.linear_qkv" + what;
  const std::string proj = block + "self_attention.linear_proj" + what;
  const std::string up = block + "mlp.linear_fc1" + what;
  const std::string down = block + "mlp.linear_fc2" + what;
  const std::int64_t q_heads = o_.heads / o_.kv_heads;  // per group
  const std::int64_t q = o_.heads * o_.head_dim;
  std::vector<Run> of;
  if (layer == "attn.c_attn") {
    stacked(qkv, 0, o_.heads, 0, of);
    stacked(qkv, q, o_.kv_heads, q_heads, of);
    stacked(qkv, q + o_.kv_heads * o_.head_dim, o_.kv_heads, q_heads + 1, of);
  } else if (layer == "self_attn.q_proj") {
    stacked(qkv, 0, o_.heads, 0, of);
  } else if (layer == "self_attn.k_proj") {
    stacked(qkv, 0, o_.kv_heads, q_heads, of);
  } else if (layer == "self_attn.v_proj") {
    stacked(qkv, 0, o_.kv_heads, q_heads + 1, of);
  } else if (layer == "attn.c_proj" || layer == "self_attn.o_proj") {
    what == ".weight" ? cut_cols(proj) : replicated(proj);
  } else if (layer == "mlp.c_proj" || layer == "mlp.down_proj") {
    what == ".weight" ? cut_cols(down) : replicated(down);
  } else if (layer == "mlp.c_fc") {
    cut_rows(up, 0, 1);
  } else if (layer == "mlp.gate_proj") {
    cut_rows(up, 0, 2);
  } else if (layer == "mlp.up_proj") {
    cut_rows(up, 1, 2);
  } else if (layer == "ln_1" || layer == "input_layernorm") {
    replicated(block + "input_layernorm" + what);
  } else if (layer == "ln_2" || layer == "post_attention_layernorm") {
    replicated(block + "pre_mlp_layernorm" + what);
  } else {
    return false;
  }
  runs(qkv, of);
  return true;
}

void replace(std::string& text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  if (at != std::string::npos) text.replace(at, from.size(), to);
}

std::string megatron_name(std::string name) {
  // Names of the first generation, of Megatron-DeepSpeed, and of layers that fuse norm and product.
  constexpr std::array<std::pair<std::string_view, std::string_view>, 15> kOlder{{
      {".attention.", ".self_attention."},
      {".query_key_value.", ".linear_qkv."},
      {".self_attention.dense.", ".self_attention.linear_proj."},
      {".dense_h_to_4h.", ".linear_fc1."},
      {".dense_4h_to_h.", ".linear_fc2."},
      {".input_norm.", ".input_layernorm."},
      {".post_attention_norm.", ".pre_mlp_layernorm."},
      {".post_attention_layernorm.", ".pre_mlp_layernorm."},
      {".self_attention.linear_qkv.layer_norm_", ".input_layernorm."},
      {".mlp.linear_fc1.layer_norm_", ".pre_mlp_layernorm."},
      {".final_norm.", ".final_layernorm."},
      {"lm_head.", "output_layer."},
      {"word_embeddings_for_head.", "output_layer."},
      {"encoder.layers.", "decoder.layers."},
      {"encoder.final_", "decoder.final_"},
  }};
  if (name.ends_with("_extra_state") || name.ends_with(".inv_freq") || name.empty()) return "";
  if (name.starts_with("module.")) name.erase(0, 7);
  if (name.starts_with("language_model.")) name.erase(0, 15);
  if (name.starts_with("transformer.")) name.replace(0, 12, "encoder.");
  for (const auto& [from, to] : kOlder) replace(name, from, to);
  return name;
}

}  // namespace

ImportLayout plan_import(const ModelSpec& spec, ImportNames names, int parts,
                         std::int64_t table_rows) {
  check(parts > 0 && table_rows > 0, "a checkpoint with parts and a table");
  Planner planner(spec, parts, table_rows);
  return names == ImportNames::kMegatron ? planner.megatron(spec) : planner.hugging_face(spec);
}

std::string canonical_import_name(ModelType type, ImportNames names, const std::string& in_file) {
  if (names == ImportNames::kMegatron) return megatron_name(in_file);
  std::string name = in_file;
  if (name.starts_with("module.")) name.erase(0, 7);
  name = hf_canonical_name(type, name);
  return hf_is_buffer(type, name) ? "" : name;
}

std::string import_table_name(ModelType type, ImportNames names) {
  return names == ImportNames::kMegatron ? kTable : hf_table_name(type);
}

std::string import_head_name(ImportNames names) {
  return names == ImportNames::kMegatron ? kHead : kHfHead;
}

std::string import_positions_name(ImportNames names) {
  return names == ImportNames::kMegatron ? kPositionTable : kHfPositions;
}

}  // namespace sluice
