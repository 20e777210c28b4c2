// A whole model, or the parts of tensor-parallel ranks, run forward and backward on computed
// numbers. Ranks are threads of this process.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/model/units.hpp"

namespace sluice::testing {

enum class PartMode { kSaved, kRecomputed, kSplit };

struct PartCase {
  ModelOptions options;
  int tensor = 1;
  bool sequence = false;
  c10::ScalarType type = c10::ScalarType::Float;
  std::int64_t batch = 2;
  PartMode mode = PartMode::kSaved;
};

struct PartResult {
  double loss = 0;
  std::map<std::string, at::Tensor> grads;  // fp32, by name
  at::Tensor hidden;                        // what the head was given
  at::Tensor grad_hidden;                   // by the embedding's output
  at::Tensor logits;                        // of position 1
  std::vector<TensorGroup::Timed> exchanges;
};

// Result r is rank r's. Rethrows the exception of a rank.
[[nodiscard]] std::vector<PartResult> run_parts(const PartCase& given);

// The whole parameter by its spec, and a rank's part of it.
[[nodiscard]] at::Tensor whole_parameter(const ParamSpec& param);
[[nodiscard]] at::Tensor part_of_whole(const at::Tensor& whole, const ParamSpec& param);

[[nodiscard]] ModelPart part_of_rank(const PartCase& given, int rank);

}  // namespace sluice::testing
