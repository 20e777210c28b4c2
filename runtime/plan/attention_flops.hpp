// The rate of a model's attention on a GPU, from the rates of three sizes. Pure.
#pragma once

#include "runtime/model/model_options.hpp"
#include "runtime/plan/machine_rates.hpp"

namespace sluice {

// FLOP/s of attention, forward and backward together, by the operator of options.attention. If its
// rates are not known: by the other operator. 0: the rates of neither operator are known.
//
// The time of a pair of a query and a key has a part in proportion to the head, up to 128 elements,
// and a part that does not depend on it. Blocks at the diagonal are computed whole, as if a row had
// some keys more (figures 5 and 6 of FlashAttention-3, Shah et al. 2024).
[[nodiscard]] double attention_flops(const AttentionFlops& known, const ModelOptions& options);

}  // namespace sluice
