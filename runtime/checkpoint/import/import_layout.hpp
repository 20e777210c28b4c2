// Where our parameters lie in checkpoints of other programs: by Hugging Face's names, or by
// Megatron's with its fused and tensor-parallel tensors. Pure.
//
// Megatron stacks q, k and v by query group, [groups, heads/groups + 2, head_dim] rows; gate over
// up in one matrix, on each tensor-parallel rank its own share of both; and fills the vocabulary up
// to a multiple (Megatron-LM, arXiv 1909.08053; docs/huggingface.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/model/model_spec.hpp"

namespace sluice {

enum class ImportNames { kHuggingFace, kMegatron };

// A rectangle of a parameter and the tensor it comes from. A vector is one row.
struct ImportBlock {
  std::int64_t row = 0, rows = 0;  // ours
  std::int64_t col = 0, cols = 0;
  int part = 0;        // tensor-parallel rank that has it
  std::string tensor;  // its name there, canonical
  std::int64_t from_row = 0, from_col = 0;
  bool transposed = false;  // ours (r, c) is theirs (from_row + c, from_col + r)
};

enum class ImportRows {
  kExact,
  kVocabulary,  // more rows than ours are padding; fewer: the rest is drawn
  kPositions,   // the first are taken
};

struct ImportTensor {
  int part = 0;
  std::string name;
  std::vector<std::int64_t> shape;  // of a table: as stored, or as the model has it
  ImportRows table = ImportRows::kExact;
};

struct ImportParam {
  std::string name;  // ours
  std::vector<std::int64_t> shape;
  double init_std = 0;  // of rows that are drawn
  std::vector<ImportBlock> blocks;
  [[nodiscard]] std::int64_t rows() const { return shape.size() == 2 ? shape[0] : 1; }
  [[nodiscard]] std::int64_t cols() const { return shape.back(); }
};

struct ImportLayout {
  std::vector<ImportParam> params;    // in the model's order
  std::vector<ImportTensor> tensors;  // that they come from, each once
};

// `table_rows`: of the token table (and head) as stored on one part, padding included. Throws
// ConfigError where heads, groups or ffn do not divide by `parts`.
[[nodiscard]] ImportLayout plan_import(const ModelSpec& spec, ImportNames names, int parts,
                                       std::int64_t table_rows);

// A tensor's name as the layout has it: Megatron's two generations of names become one. Empty: no
// weight (buffers, _extra_state).
[[nodiscard]] std::string canonical_import_name(ModelType type, ImportNames names,
                                                const std::string& in_file);
// Names of the token table, of the head that is not tied, and of learned positions, canonical.
[[nodiscard]] std::string import_table_name(ModelType type, ImportNames names);
[[nodiscard]] std::string import_head_name(ImportNames names);
[[nodiscard]] std::string import_positions_name(ImportNames names);

}  // namespace sluice
