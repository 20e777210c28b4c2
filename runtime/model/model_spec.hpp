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
#include "zero/partition_plan.hpp"

namespace sluice {

enum class Init { kNormal, kZeros, kOnes };

struct ParamSpec {
  TensorSpec tensor;
  Init init = Init::kNormal;
  double init_std = 0;
};

struct ParamGroup {
  std::string name;
  std::vector<ParamSpec> params;
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
  std::vector<UnitSpec> units;  // embedding, blocks, loss head

  [[nodiscard]] std::int64_t param_count() const;
  // Multiply-adds count two. Attention is counted causal (half the square), within the window.
  [[nodiscard]] double forward_flops_per_sample(const UnitSpec& unit) const;
  // Of these, what no matrix of weights takes part in: scores, and their product with the values.
  [[nodiscard]] double attention_flops_per_sample(const UnitSpec& unit) const;
  // What the model holds on its device beside parameters: rotary tables and a window's mask.
  [[nodiscard]] std::int64_t constant_bytes() const;
};

// REQUIRES: options.vocab > 0; the rules between keys hold (configs/validate.hpp).
[[nodiscard]] ModelSpec make_model_spec(const ModelOptions& options);

}  // namespace sluice
