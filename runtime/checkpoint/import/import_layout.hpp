// The positions of Sluice's parameters in checkpoints of other programs: under Hugging Face's
// names, or under Megatron's names with fused and tensor-parallel tensors. Pure.
//
// Megatron stacks q, k and v by query group: rows [groups, heads/groups + 2, head_dim]. It stacks
// gate over up in one matrix; each tensor-parallel rank has its own part of both. It pads the
// vocabulary to a multiple (Megatron-LM, arXiv 1909.08053; docs/huggingface.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/model/model_spec.hpp"

namespace sluice {

enum class ImportNames { kHuggingFace, kMegatron };

// A rectangle of a parameter and its position in a tensor. A vector is one row.
struct ImportBlock {
  std::int64_t row = 0, rows = 0;  // in Sluice's parameter
  std::int64_t col = 0, cols = 0;
  int part = 0;        // tensor-parallel rank that has the tensor
  std::string tensor;  // canonical name of the tensor
  std::int64_t from_row = 0, from_col = 0;
  bool transposed = false;  // element (r, c) is element (from_row + c, from_col + r) of the tensor
};

enum class ImportRows {
  kExact,
  kVocabulary,  // extra rows are padding; missing rows get initial weights
  kPositions,   // uses the first rows
};

struct ImportTensor {
  int part = 0;
  std::string name;
  std::vector<std::int64_t> shape;  // of a table: as stored, or as in the model
  ImportRows table = ImportRows::kExact;
};

struct ImportParam {
  std::string name;  // Sluice's name
  std::vector<std::int64_t> shape;
  double init_std = 0;  // of missing rows
  std::vector<ImportBlock> blocks;
  [[nodiscard]] std::int64_t rows() const { return shape.size() == 2 ? shape[0] : 1; }
  [[nodiscard]] std::int64_t cols() const { return shape.back(); }
};

struct ImportLayout {
  std::vector<ImportParam> params;    // in the model's order
  std::vector<ImportTensor> tensors;  // the source tensors, each once
};

// `table_rows`: rows of the token table (and head) that one part stores, including padding. Throws
// ConfigError if `parts` does not divide heads, groups or ffn.
[[nodiscard]] ImportLayout plan_import(const ModelSpec& spec, ImportNames names, int parts,
                                       std::int64_t table_rows);

// The canonical name of a tensor, as in the layout. Maps both generations of Megatron's names to
// one. Empty for buffers and _extra_state, which are no weights.
[[nodiscard]] std::string canonical_import_name(ModelType type, ImportNames names,
                                                const std::string& in_file);
// Canonical names of the token table, of an untied head, and of learned positions.
[[nodiscard]] std::string import_table_name(ModelType type, ImportNames names);
[[nodiscard]] std::string import_head_name(ImportNames names);
[[nodiscard]] std::string import_positions_name(ImportNames names);

}  // namespace sluice
