// Which kind of block runs, for plans, budget checks, searches and runs.
#pragma once

#include "runtime/model/model_options.hpp"

namespace sluice {

// Blocks with a written-out backward, else libtorch's autograd. On a GPU attention has no masks of
// dropout, and flash attention takes heads of multiples of 8 up to 256.
[[nodiscard]] inline bool runs_explicit_blocks(const ModelOptions& o) {
  const std::int64_t head_dim = o.head_dim > 0 ? o.head_dim : o.hidden / o.heads;
  return o.explicit_units &&
         (!o.on_gpu || (o.dropout == 0 && head_dim % 8 == 0 && head_dim <= 256));
}

}  // namespace sluice
