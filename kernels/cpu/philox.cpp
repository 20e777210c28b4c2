#include "kernels/cpu/philox.hpp"

#include <cmath>
#include <string>

#include "base/error.hpp"
#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/dropout_threshold.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/cpu/philox_core.hpp"

namespace sluice {
namespace {

struct BaselineTag;

// Pieces begin at multiples of a batch only if first_element does. The values do not depend on it.
template <class T, class Fill>
void fill_parallel(std::span<T> out, std::uint64_t seed, std::uint64_t stream,
                   std::int64_t first_element, Fill fill) {
  check(first_element >= 0, "random fill: first_element < 0");
  parallel_for(static_cast<std::int64_t>(out.size()), grain_elements(16),
               [&](std::int64_t begin, std::int64_t end) {
                 fill(out.data() + begin,
                      PhiloxRange{.seed = seed,
                                  .stream = stream,
                                  .first = static_cast<std::uint64_t>(first_element + begin),
                                  .n = end - begin});
               });
}

}  // namespace

std::array<std::uint32_t, 4> philox_block(std::uint64_t seed, std::uint64_t stream,
                                          std::uint64_t block) {
  std::array<std::uint32_t, 4> x{
      static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
      static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)};
  isa::philox_rounds<BaselineTag>(x[0], x[1], x[2], x[3], static_cast<std::uint32_t>(seed),
                                  static_cast<std::uint32_t>(seed >> 32));
  return x;
}

std::uint64_t hash_name(std::string_view name) {
  std::uint64_t h = 0xcbf29ce484222325U;  // FNV-1a
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return isa::mix_bits<BaselineTag>(h);
}

std::uint64_t hash_stream(std::span<const std::uint64_t> parts) {
  std::uint64_t h = isa::kStreamStart;
  for (const std::uint64_t part : parts) h = isa::with_part<BaselineTag>(h, part);
  return h;
}

void fill_normal(std::span<float> out, std::uint64_t seed, std::uint64_t stream,
                 std::int64_t first_element, float mean, float std) {
  const KernelTable& table = kernels();
  fill_parallel(out, seed, stream, first_element, [&](float* to, const PhiloxRange& range) {
    table.fill_normal(to, range, mean, std);
  });
}

std::uint64_t dropout_threshold(double p) {
  if (!(p >= 0.0 && p < 1.0)) {
    throw Error("dropout: p = " + std::to_string(p) + " is no probability below 1; use 0 <= p < 1");
  }
  return static_cast<std::uint64_t>(std::llround(p * 0x1p32));
}

void fill_dropout_mask(std::span<std::uint8_t> keep, std::uint64_t seed, std::uint64_t stream,
                       std::int64_t first_element, double p) {
  const KernelTable& table = kernels();
  const std::uint64_t threshold = dropout_threshold(p);
  fill_parallel(keep, seed, stream, first_element, [&](std::uint8_t* to, const PhiloxRange& range) {
    table.fill_mask_bytes(to, range, threshold);
  });
}

void fill_dropout_mask(std::span<float> keep, std::uint64_t seed, std::uint64_t stream,
                       std::int64_t first_element, double p) {
  const KernelTable& table = kernels();
  const std::uint64_t threshold = dropout_threshold(p);
  const auto factor = static_cast<float>(1.0 / (1.0 - p));
  fill_parallel(keep, seed, stream, first_element, [&](float* to, const PhiloxRange& range) {
    table.fill_mask_floats(to, range, threshold, factor);
  });
}

}  // namespace sluice
