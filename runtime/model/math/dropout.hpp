// Dropout whose mask is a function of (seed, step, sample, site, element) alone. So the mask is the
// same for any split of the batch over ranks and micro-batches, and when the forward runs again.
#pragma once

#include "runtime/model/unit.hpp"

namespace sluice {

// Identity if call.training is false or p is 0; else x * mask / (1 - p). x: [B, ...]. `site` is the
// place in the model (unit and position within it).
[[nodiscard]] at::Tensor dropout(const at::Tensor& x, double p, const UnitCall& call,
                                 std::uint64_t site);

}  // namespace sluice
