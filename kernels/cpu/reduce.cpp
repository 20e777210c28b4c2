#include "kernels/cpu/reduce.hpp"

#include <atomic>
#include <bit>
#include <cstddef>
#include <vector>

#include "base/error.hpp"
#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/parallel.hpp"

namespace sluice {

double pairwise_sum(const double* values, std::int64_t count) {
  if (count <= 0) return 0.0;
  if (count == 1) return values[0];
  // The left part has the largest power of two below `count`.
  const auto left =
      static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(count - 1)));
  return pairwise_sum(values, left) + pairwise_sum(values + left, count - left);
}

double sum_squares(const void* x, DType dtype, std::int64_t n) {
  std::vector<double> sums(static_cast<std::size_t>(n < 0 ? 0 : (n + kSumBlock - 1) / kSumBlock));
  sum_squares_blocks(x, dtype, n, sums.data());
  return pairwise_sum(sums.data(), static_cast<std::int64_t>(sums.size()));
}

void sum_squares_blocks(const void* x, DType dtype, std::int64_t n, double* sums) {
  check(n >= 0 && (x != nullptr || n == 0), "sum_squares: no buffer, or n < 0");
  const std::int64_t blocks = (n + kSumBlock - 1) / kSumBlock;
  const KernelTable& table = kernels();
  const auto* bytes = static_cast<const std::byte*>(x);
  // 16 / size blocks are 64 KiB.
  parallel_for(blocks, 16 / size_of(dtype), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t first = b * kSumBlock;
      const std::int64_t count = n - first < kSumBlock ? n - first : kSumBlock;
      sums[b] = table.sum_squares_block(bytes + first * size_of(dtype), dtype, count);
    }
  });
}

std::int64_t first_non_finite(const void* x, DType dtype, std::int64_t n) {
  check(n >= 0 && (x != nullptr || n == 0), "first_non_finite: no buffer, or n < 0");
  const KernelTable& table = kernels();
  const auto* bytes = static_cast<const std::byte*>(x);
  std::atomic<std::int64_t> first{n};
  parallel_for(n, grain_elements(size_of(dtype)), [&](std::int64_t begin, std::int64_t end) {
    if (begin >= first.load(std::memory_order_relaxed)) return;  // an earlier element is known
    const std::int64_t found =
        begin + table.first_non_finite(bytes + begin * size_of(dtype), dtype, end - begin);
    if (found == end) return;
    std::int64_t known = first.load(std::memory_order_relaxed);
    while (found < known && !first.compare_exchange_weak(known, found, std::memory_order_relaxed)) {
    }
  });
  return first.load() == n ? -1 : first.load();
}

}  // namespace sluice
