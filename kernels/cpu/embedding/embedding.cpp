#include "kernels/cpu/embedding/embedding.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/error.hpp"
#include "base/index.hpp"
#include "kernels/cpu/check_ids.hpp"
#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/cpu/row_grain.hpp"

namespace sluice {
void embedding_forward(const EmbeddingArgs& a) {
  check(a.hidden >= 1, "embedding_forward: hidden < 1");
  check(a.tokens.empty() || (a.out != nullptr && a.table != nullptr),
        "embedding_forward: a null buffer");
  check(a.positions == nullptr || a.position_rows >= 1, "embedding_forward: position_rows < 1");
  check_tokens(a.tokens, a.rows);
  const KernelTable& table = kernels();
  const std::int64_t row_bytes = a.hidden * size_of(a.dtype);
  auto* out = static_cast<std::byte*>(a.out);
  const auto* words = static_cast<const std::byte*>(a.table);
  const auto* positions = static_cast<const std::byte*>(a.positions);
  const auto count = static_cast<std::int64_t>(a.tokens.size());
  const std::int64_t grain = std::max<std::int64_t>(1, grain_elements(1) / row_bytes);
  parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      std::byte* to = out + t * row_bytes;
      const std::byte* from = words + nth(a.tokens, t) * row_bytes;
      if (positions == nullptr) {
        std::memcpy(to, from, static_cast<std::size_t>(row_bytes));
      } else {
        table.add_rows(to, from, positions + t % a.position_rows * row_bytes, a.dtype, a.hidden);
      }
    }
  });
}

void embedding_backward(float* grad_table, std::span<const std::int64_t> tokens, const void* dy,
                        DType dtype, std::int64_t rows, std::int64_t hidden) {
  check(hidden >= 1, "embedding_backward: hidden < 1");
  check(tokens.empty() || (grad_table != nullptr && dy != nullptr),
        "embedding_backward: a null buffer");
  check_tokens(tokens, rows);
  const KernelTable& table = kernels();
  const auto* from = static_cast<const std::byte*>(dy);
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (count == 0) return;
  // Each thread has whole columns. So every element has one writer, which adds the tokens in order.
  parallel_for(hidden, column_grain(hidden, count), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = 0; t < count; ++t) {
      table.add_to(grad_table + nth(tokens, t) * hidden + begin,
                   from + (t * hidden + begin) * size_of(dtype), dtype, end - begin, true);
    }
  });
}

}  // namespace sluice
