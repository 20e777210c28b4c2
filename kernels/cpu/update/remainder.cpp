#include "kernels/cpu/update/remainder.hpp"

#include <bit>

#include "kernels/cpu/parallel.hpp"

namespace sluice {
namespace {

template <class Fn>
void for_elements(std::int64_t n, const Fn& change) {
  parallel_for(n, grain_elements(4), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) change(i);
  });
}

}  // namespace

void leave_ties(float* master, std::int64_t n) {
  for_elements(n, [master](std::int64_t i) {
    const auto bits = std::bit_cast<std::uint32_t>(master[i]);
    master[i] = std::bit_cast<float>(bits - ((bits & 0x1ffffU) == 0x8000U ? 1U : 0U));
  });
}

void take_remainders(std::uint16_t* remainders, const float* master, std::int64_t n) {
  for_elements(n, [=](std::int64_t i) {
    remainders[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(master[i]));
  });
}

// A remainder of 0x8000 and more belongs to a weight that was rounded up.
void add_remainders(float* weights, const std::uint16_t* remainders, std::int64_t n) {
  for_elements(n, [=](std::int64_t i) {
    const auto remainder = static_cast<std::uint32_t>(static_cast<std::int16_t>(remainders[i]));
    weights[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(weights[i]) + remainder);
  });
}

}  // namespace sluice
