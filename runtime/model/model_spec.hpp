// A model as a table of parameter groups and units. Pure.
//
// A group is gathered, reduced and updated together; a unit runs. Most units own one group. A tied
// embedding is a group of its own that the first and the last unit read. Names and shapes are those
// of a torch Linear ([out, in]) under Hugging Face's parameter names.
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
  // For a tensor-parallel rank that holds a part: shape of the whole parameter, and the boxes that
  // form the rank's tensor, one after another along the first dimension. Empty: the rank holds all
  // of it.
  std::vector<std::int64_t> whole_shape{};
  std::vector<ParamBox> boxes{};
};

// Ranks, beside data-parallel ones, that hold the same parameters of a group.
enum class Replicas {
  kNone,
  kTensor,  // all tensor-parallel ranks, or runs of `replica_ranks` of them
  kTied,    // the first and the last pipeline stage: a tied embedding
};

struct ParamGroup {
  std::string name;
  std::vector<ParamSpec> params;
  Replicas replicas = Replicas::kNone;
  int replica_ranks = 1;       // ranks with the same parameters, this rank included
  bool sums_replicas = false;  // true: replicas have parts of the gradient; false: equal gradients
  bool counted = true;         // in the gradient norm and in checkpoints; one replica is counted
  bool frozen = false;         // the parameters are not trained
};

// FLOP of a backward relative to those of its forward: by the input, and by the weights.
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
  ModelPart part{};             // the rank's units and slices; default: the whole model

  [[nodiscard]] std::int64_t param_count() const;
  [[nodiscard]] std::int64_t frozen_param_count() const;  // part of param_count()
  // A multiply-add counts two. Attention counts as causal (half the square), within the window.
  [[nodiscard]] double forward_flops_per_sample(const UnitSpec& unit) const;
  // FLOP of the gradients of the unit's trained weights; as the forward if no weight is frozen.
  [[nodiscard]] double weight_flops_per_sample(const UnitSpec& unit) const;
  // The part without a matrix of weights: scores, and their product with the values.
  [[nodiscard]] double attention_flops_per_sample(const UnitSpec& unit) const;
  // Device memory of the model beside parameters: rotary tables and a window's mask.
  [[nodiscard]] std::int64_t constant_bytes() const;
};

// The table of one rank, by default of the whole model. Sizes, FLOP and bytes are the rank's.
//
// - A tensor-parallel rank holds rows of matrices that produce heads, ffn and words, and columns of
//   matrices that consume heads and ffn (model_slices.hpp). All ranks hold norms, positions and the
//   biases behind a sum over ranks. A unit's own part is in its group ("h.0"), the part that other
//   ranks hold too in "h.0.replicated", key heads that some ranks share in "h.0.kv".
// - A pipeline stage holds the units of its chunks, under the names of the whole model. The first
//   and the last stage hold a tied table.
//
// - Frozen parameters (ModelOptions::freeze) of a group with trained ones are a group of their own,
//   "h.0.frozen".
//
// REQUIRES: options.vocab > 0; the rules between keys hold (configs/validate.hpp). Throws as
// model_slices() and units_of(). Throws ConfigError if a pattern of `freeze` names no parameter, or
// if all parameters are frozen.
[[nodiscard]] ModelSpec make_model_spec(const ModelOptions& options, const ModelPart& part = {});

// Whether each of the unit's parameters is frozen, in the unit's order.
[[nodiscard]] std::vector<bool> frozen_params(const ModelSpec& spec, std::size_t unit);

}  // namespace sluice
