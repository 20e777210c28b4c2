// What the kernel tests share: every instruction set, thread counts, odd sizes, bit comparison.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/dtype.hpp"
#include "kernels/cpu/cast.hpp"
#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/parallel.hpp"

namespace sluice::testing {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// 1 and 15: tail only; 17: one block and a tail; 50257: several pieces on several threads.
inline const std::vector<std::int64_t> kSizes{1, 15, 16, 17, 1000, 50257};
inline const std::vector<DType> kDTypes{DType::kFloat32, DType::kBFloat16, DType::kFloat16};

inline std::vector<Isa> isas_here() {
  std::vector<Isa> result;
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
    if (table_for(isa) != nullptr) result.push_back(isa);
  }
  return result;
}

// Equal bits of one thread and of several are for builds without ThreadSanitizer, which looks for
// races.
#ifdef __SANITIZE_THREAD__
inline constexpr int kThreadCounts[] = {3};
#else
inline constexpr int kThreadCounts[] = {1, 2, 3};
#endif

// Runs `body()` on every instruction set and thread count.
template <class Body>
void on_every_setting(Body body) {
  const Isa before = detect_isa();
  const int threads_before = compute_threads();
  for (const Isa isa : isas_here()) {
    for (const int threads : kThreadCounts) {
      select_isa(isa);
      set_compute_threads(threads);
      SCOPED_TRACE(std::string(kernels().name) + ", " + std::to_string(threads) + " threads");
      body();
    }
  }
  select_isa(before);
  set_compute_threads(threads_before);
}

// `compute()` returns a vector; all settings must return the same bits.
template <class Compute>
void expect_same_bits_everywhere(Compute compute) {
  decltype(compute()) expected;
  bool first = true;
  on_every_setting([&] {
    const auto result = compute();
    if (first) expected = result;
    first = false;
    ASSERT_EQ(result.size(), expected.size());
    EXPECT_EQ(std::memcmp(result.data(), expected.data(), result.size() * sizeof(result[0])), 0);
  });
}

// A prime: no block, row or vector of a kernel begins where the values do. To draw a value takes
// longer than any kernel does for one.
inline constexpr std::size_t kDrawnValues = 65537;

// Independent, up to kDrawnValues of them; those repeat.
inline std::vector<float> normal_values(std::int64_t n, unsigned seed, float std = 1.0F) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0F, std);
  std::vector<float> values(static_cast<std::size_t>(n));
  const auto drawn = std::min<std::size_t>(values.size(), kDrawnValues);
  for (std::size_t i = 0; i < drawn; ++i) values[i] = normal(engine);
  for (std::size_t i = drawn; i < values.size(); ++i) values[i] = values[i - drawn];
  return values;
}

// Values of all binades, zeros, subnormals and infinities, no NaN.
inline std::vector<float> wild_values(std::int64_t n, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& value : values) {
    value = std::bit_cast<float>(static_cast<std::uint32_t>(engine()));
    if (std::isnan(value)) value = engine() % 2 == 0 ? 0.0F : kInf;
  }
  return values;
}

// The values in a buffer of `dtype`.
inline std::vector<std::byte> as_bytes(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(size_of(dtype)));
  convert(bytes.data(), dtype, values.data(), DType::kFloat32,
          static_cast<std::int64_t>(values.size()));
  return bytes;
}

// The operator of such vectors compares byte by byte.
inline bool same_bytes(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

// A value after a round trip through dtype.
inline float rounded(float value, DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return value;
    case DType::kBFloat16:
      return float_of_bf16(bf16_bits(value));
    case DType::kFloat16:
      return float_of_fp16(fp16_bits(value));
  }
  return value;
}

}  // namespace sluice::testing
