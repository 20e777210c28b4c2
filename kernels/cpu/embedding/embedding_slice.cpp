#include "kernels/cpu/embedding/embedding_slice.hpp"

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
namespace {

void check_args(const EmbeddingSlice& a) {
  check(a.hidden >= 1 && a.first >= 0 && a.rows >= 1 && a.first + a.rows <= a.table_rows,
        "embedding_slice: a slice lies within its table");
  check_tokens(a.tokens, a.table_rows);
}

bool in_slice(const EmbeddingSlice& a, std::int64_t token) {
  return token >= a.first && token < a.first + a.rows;
}

}  // namespace

void embedding_slice_forward(void* out, const void* slice, DType dtype, const EmbeddingSlice& a) {
  check_args(a);
  const std::int64_t row_bytes = a.hidden * size_of(dtype);
  const auto count = static_cast<std::int64_t>(a.tokens.size());
  const std::int64_t grain = std::max<std::int64_t>(1, grain_elements(1) / row_bytes);
  parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      std::byte* to = static_cast<std::byte*>(out) + t * row_bytes;
      const std::int64_t token = nth(a.tokens, t);
      if (in_slice(a, token)) {
        std::memcpy(to, static_cast<const std::byte*>(slice) + (token - a.first) * row_bytes,
                    static_cast<std::size_t>(row_bytes));
      } else {
        std::memset(to, 0, static_cast<std::size_t>(row_bytes));
      }
    }
  });
}

void embedding_slice_backward(float* grad, const void* dy, DType dtype, const EmbeddingSlice& a) {
  check_args(a);
  const auto count = static_cast<std::int64_t>(a.tokens.size());
  if (count == 0) return;
  const KernelTable& table = kernels();
  const auto* from = static_cast<const std::byte*>(dy);
  // Each thread has whole columns, as in embedding_backward: every element has one writer, which
  // adds the tokens in order.
  parallel_for(a.hidden, column_grain(a.hidden, count), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = 0; t < count; ++t) {
      const std::int64_t token = nth(a.tokens, t);
      if (!in_slice(a, token)) continue;
      table.add_to(grad + (token - a.first) * a.hidden + begin,
                   from + (t * a.hidden + begin) * size_of(dtype), dtype, end - begin, true);
    }
  });
}

}  // namespace sluice
