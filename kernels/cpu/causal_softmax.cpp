#include "kernels/cpu/causal_softmax.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/dropout.hpp"
#include "kernels/cpu/parallel.hpp"

namespace sluice {
namespace {

// f(first element of the row, its visible keys, head, query) for every row.
template <class Fn>
void for_rows(const CausalBlock& b, Fn f) {
  check(b.queries <= b.keys && b.heads >= 0 && b.queries >= 0,
        "causal_softmax: more queries than keys");
  const std::int64_t grain =
      std::max<std::int64_t>(1, grain_elements(4) / 4 / std::max<std::int64_t>(1, b.keys));
  parallel_for(b.heads * b.queries, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t query = row % b.queries;
      f(row * b.keys, b.keys - b.queries + query + 1, row / b.queries, query);
    }
  });
}

}  // namespace

void causal_softmax(const CausalBlock& b) {
  const KernelTable& table = kernels();
  for_rows(b, [&](std::int64_t at, std::int64_t visible, std::int64_t, std::int64_t) {
    float* row = b.scores + at;
    table.scale(row, visible, b.scale);
    const double sum = table.row_exp_sum(row, row, visible, table.row_max(row, visible));
    table.scale(row, visible, static_cast<float>(1.0 / sum));
    std::fill(row + visible, row + b.keys, 0.0F);
  });
}

void causal_softmax_gradient(const CausalBlock& b, float* grad) {
  const KernelTable& table = kernels();
  for_rows(b, [&](std::int64_t at, std::int64_t, std::int64_t, std::int64_t) {
    table.softmax_gradient_row(grad + at, b.scores + at, b.keys, b.scale);
  });
}

void drop_weights(const CausalBlock& b, const float* weights, float* out,
                  const WeightDropout& dropout) {
  for_rows(b, [&](std::int64_t at, std::int64_t visible, std::int64_t head, std::int64_t query) {
    const std::int64_t position = b.keys - b.queries + query;
    dropout_add(
        {.out = out + at,
         .x = weights + at,
         .n = visible,
         .p = dropout.p,
         .seed = dropout.seed,
         .stream = dropout.stream,
         .first_element = ((dropout.first_head + head) * dropout.seq + position) * dropout.seq});
    std::fill(out + at + visible, out + at + b.keys, 0.0F);
  });
}

}  // namespace sluice
