// The part of a model that one rank of a mesh holds: slices of its parameters (tensor parallelism,
// Shoeybi et al. 2019; with `sequence` that of Korthikanti et al. 2022), and some of its units
// (pipeline stages). Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

namespace sluice {

// Units [begin, end) of the whole model.
struct UnitRange {
  int begin = 0;
  int end = 0;
  auto operator<=>(const UnitRange&) const = default;
};

struct ModelPart {
  int tensor = 1;
  int tensor_rank = 0;
  bool sequence = false;  // between units a rank has 1 / tensor of each sample's tokens
  int stages = 1;
  int stage = 0;
  std::vector<UnitRange> chunks{};  // the stage's units in order of forward; empty: all units

  // Largest number of parameter groups of a pipeline stage; 0: not known.
  int most_groups = 0;

  [[nodiscard]] bool begins_model() const { return stage == 0; }
  [[nodiscard]] bool ends_model() const { return stage == stages - 1; }
  // Tokens of a sample of `seq` tokens that the rank holds between units.
  [[nodiscard]] std::int64_t own_tokens(std::int64_t seq) const {
    return sequence ? seq / tensor : seq;
  }
  auto operator<=>(const ModelPart&) const = default;
};

}  // namespace sluice
