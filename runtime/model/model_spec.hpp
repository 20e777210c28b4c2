// A model as a table: its parameter groups and its units. Pure; the sizes come first, memory after.
//
// Groups are what is gathered, reduced and updated together; units are what runs. Most units own
// one group; a tied embedding is a group of its own that the first and the last unit both read.
// Names and shapes are those of a torch Linear ([out, in]) under Hugging Face's parameter names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/model/model_options.hpp"
#include "runtime/model/model_part.hpp"
#include "zero/partition_plan.hpp"

namespace sluice {

enum class Init { kNormal, kZeros, kOnes };

// A box of a parameter: [offset, offset + length) in each dimension.
struct ParamBox {
  std::vector<std::int64_t> offset;
  std::vector<std::int64_t> length;
};

struct ParamSpec {
  TensorSpec tensor;  // as this rank has it
  Init init = Init::kNormal;
  double init_std = 0;
  // Of a tensor-parallel rank that has a part: the shape of the whole parameter, and the boxes that
  // the rank's tensor is, one after another along the first dimension. Empty: it has all of it.
  std::vector<std::int64_t> whole_shape{};
  std::vector<ParamBox> boxes{};
};

// Who else, beside data-parallel ranks, holds a group's parameters.
enum class Replicas {
  kNone,
  kTensor,  // all tensor-parallel ranks, or runs of `replica_ranks` of them
  kTied,    // the first and the last pipeline stage: a tied embedding
};

struct ParamGroup {
  std::string name;
  std::vector<ParamSpec> params;
  Replicas replicas = Replicas::kNone;
  int replica_ranks = 1;       // that hold the same, this one included
  bool sums_replicas = false;  // each has a part of the gradient; else they have equal ones
  bool counted = true;         // in the gradient norm and in checkpoints: one of the replicas is
};

// FLOP of a backward over those of its forward: by the input, and by the weights.
inline constexpr double kBackwardFlops = 2;

enum class UnitKind { kEmbedding, kBlock, kLossHead };

struct ParamRef {
  int group = 0;
  int index = 0;  // in the group
};

struct UnitSpec {
  std::string name;
  UnitKind kind = UnitKind::kBlock;
  std::vector<ParamRef> params;  // in the order the unit takes them
};

struct ModelSpec {
  ModelOptions options;  // with every 0 = default filled in
  std::vector<ParamGroup> groups;
  std::vector<UnitSpec> units;  // embedding, blocks, loss head; of the part's chunks
  ModelPart part{};             // which of them, and what of each, a rank has; the whole model

  [[nodiscard]] std::int64_t param_count() const;
  // Multiply-adds count two. Attention is counted causal (half the square), within the window.
  [[nodiscard]] double forward_flops_per_sample(const UnitSpec& unit) const;
  // Of these, what no matrix of weights takes part in: scores, and their product with the values.
  [[nodiscard]] double attention_flops_per_sample(const UnitSpec& unit) const;
  // What the model holds on its device beside parameters: rotary tables and a window's mask.
  [[nodiscard]] std::int64_t constant_bytes() const;
};

// The table of what one rank has: by default of the whole model. Sizes, FLOP and bytes are then the
// rank's.
//
// - Of tensor-parallel ranks each has rows of what makes heads, ffn and words, and columns of what
//   takes heads and ffn (model_slices.hpp); norms, positions and the biases behind a sum over ranks
//   all of them have. What a unit has of its own is in its group ("h.0"), what others have too in
//   "h.0.replicated", key heads that some share in "h.0.kv".
// - Of pipeline stages each has the units of its chunks, under the names they have in the whole
//   model. A tied table is on the first and on the last stage.
//
// REQUIRES: options.vocab > 0; the rules between keys hold (configs/validate.hpp). Throws as
// model_slices() and units_of().
[[nodiscard]] ModelSpec make_model_spec(const ModelOptions& options, const ModelPart& part = {});

}  // namespace sluice
