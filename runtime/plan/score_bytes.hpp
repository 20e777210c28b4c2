// The memory traffic of attention's scores, for the times of units. Pure.
#pragma once

#include "base/dtype.hpp"
#include "runtime/model/attention_choice.hpp"
#include "runtime/model/model_spec.hpp"

namespace sluice {

// Bytes that attention by products writes and reads for the scores of a micro-batch, each pass over
// a row counted once. Forward: the product's scores in fp32, the weights in `dtype`. Backward: the
// same scores and the gradients of the weights, then weights (one product) and gradients of scores
// (two).
struct ScoreBytes {
  double forward = 0, backward = 0;
};

[[nodiscard]] inline ScoreBytes score_bytes(const ModelSpec& spec, const UnitSpec& unit,
                                            DType dtype, double samples) {
  if (!trains_by_products(spec.options)) return {};
  const double scores = samples * spec.attention_flops_per_sample(unit) /
                        (4 * static_cast<double>(spec.options.head_dim));
  const auto elem = static_cast<double>(size_of(dtype));
  const double forward = scores * (2 * 4 + 2 * elem);
  const double again = spec.options.recompute_attention ? forward : 0;
  return {forward, again + scores * (4 * 4 + 5 * elem)};
}

}  // namespace sluice
