#include "kernels/cpu/dropout.hpp"

#include <algorithm>
#include <cstddef>

#include "base/error.hpp"
#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/dropout_threshold.hpp"
#include "kernels/cpu/parallel.hpp"

namespace sluice {
namespace {

// Elements of one mask block: 8 KiB, well within the first-level cache.
constexpr std::int64_t kMaskBlock = 2048;

}  // namespace

void dropout_add(const DropoutArgs& a) {
  check(a.n >= 0 && a.first_element >= 0, "dropout_add: a negative size or place");
  check(a.n == 0 || (a.out != nullptr && a.x != nullptr), "dropout_add: a null buffer");
  const std::uint64_t threshold = dropout_threshold(a.p);
  const auto keep = static_cast<float>(1.0 / (1.0 - a.p));
  const KernelTable& table = kernels();
  const auto at = [&](const void* buffer, std::int64_t i) {
    return buffer == nullptr ? static_cast<const std::byte*>(nullptr)
                             : static_cast<const std::byte*>(buffer) + i * size_of(a.dtype);
  };
  parallel_for(a.n, grain_elements(4) / 4, [&](std::int64_t begin, std::int64_t end) {
    float mask[kMaskBlock];
    for (std::int64_t i = begin; i < end; i += kMaskBlock) {
      const std::int64_t n = std::min(kMaskBlock, end - i);
      const auto first = static_cast<std::uint64_t>(a.first_element + i);
      table.fill_mask_floats(mask, {.seed = a.seed, .stream = a.stream, .first = first, .n = n},
                             threshold, keep);
      table.multiply_add(static_cast<std::byte*>(a.out) + i * size_of(a.dtype), at(a.x, i), mask,
                         at(a.residual, i), a.dtype, n);
    }
  });
}

}  // namespace sluice
