#include "kernels/cpu/causal_softmax.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/dropout.hpp"
#include "kernels/cpu/parallel.hpp"

namespace sluice {
namespace {

// One row of scores; its query sees the keys [begin, end).
struct Row {
  std::int64_t at;  // index of the row's first element
  std::int64_t begin, end;
  std::int64_t head, query;

  [[nodiscard]] std::int64_t first() const { return at + begin; }
  [[nodiscard]] std::int64_t visible() const { return end - begin; }
  // Writes zeros for the keys that the query does not see.
  void clear_unseen(float* x, std::int64_t keys) const {
    std::fill(x + at, x + at + begin, 0.0F);
    std::fill(x + at + end, x + at + keys, 0.0F);
  }
};

template <class Fn>
void for_rows(const CausalBlock& b, Fn f) {
  check(b.queries <= b.keys && b.heads >= 0 && b.queries >= 0 && b.window >= 0,
        "causal_softmax: more queries than keys, or a negative size");
  const std::int64_t grain =
      std::max<std::int64_t>(1, grain_elements(4) / 4 / std::max<std::int64_t>(1, b.keys));
  parallel_for(b.heads * b.queries, grain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const std::int64_t query = row % b.queries;
      const std::int64_t end = b.keys - b.queries + query + 1;
      const std::int64_t begin = b.window > 0 ? std::max<std::int64_t>(0, end - b.window) : 0;
      f(Row{row * b.keys, begin, end, row / b.queries, query});
    }
  });
}

}  // namespace

void causal_softmax(const CausalBlock& b) {
  const KernelTable& table = kernels();
  for_rows(b, [&](const Row& row) {
    float* x = b.scores + row.first();
    const std::int64_t n = row.visible();
    table.scale(x, n, b.scale);
    const double sum = table.row_exp_sum(x, x, n, table.row_max(x, n));
    table.scale(x, n, static_cast<float>(1.0 / sum));
    row.clear_unseen(b.scores, b.keys);
  });
}

void causal_softmax_gradient(const CausalBlock& b, float* grad) {
  const KernelTable& table = kernels();
  for_rows(b, [&](const Row& row) {
    table.softmax_gradient_row(grad + row.at, b.scores + row.at, b.keys, b.scale);
  });
}

void drop_weights(const CausalBlock& b, const float* weights, float* out,
                  const WeightDropout& dropout) {
  for_rows(b, [&](const Row& row) {
    const std::int64_t position = b.first_key + b.keys - b.queries + row.query;
    const std::int64_t head = dropout.first_head + row.head * dropout.head_step;
    dropout_add(
        {.out = out + row.first(),
         .x = weights + row.first(),
         .n = row.visible(),
         .p = dropout.p,
         .seed = dropout.seed,
         .stream = dropout.stream,
         .first_element = (head * dropout.seq + position) * dropout.seq + b.first_key + row.begin});
    row.clear_unseen(out, b.keys);
  });
}

}  // namespace sluice
