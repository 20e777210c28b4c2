// 16-bit products into fp32 against double, in every layout that a layer or a head has.
#include "runtime/model/math/wide_product.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <gtest/gtest.h>

#include "runtime/model/counting_allocator.hpp"
#include "tests/runtime/model/golden.hpp"

namespace sluice::testing {
namespace {

using at::Tensor;
constexpr auto kFloat = c10::ScalarType::Float;
constexpr auto kDouble = c10::ScalarType::Double;

struct Sizes {
  std::int64_t m, n, k;
};
// One row, one column, one product, and both sides of a tile.
const Sizes kSizes[] = {{5, 7, 3}, {1, 9, 4}, {9, 1, 4}, {6, 5, 1}, {1030, 33, 20}, {17, 1025, 8}};

// [rows, columns] inside a wider matrix, or the transpose of such a one.
Tensor factor(std::uint64_t id, std::int64_t rows, std::int64_t columns, bool turned,
              c10::ScalarType type) {
  const auto piece = [&](std::int64_t r, std::int64_t c) {
    return rule_tensor(id, {r, c + 5}, 1.0).to(type).narrow(1, 2, c);
  };
  return turned ? piece(columns, rows).t() : piece(rows, columns);
}

double relative(const Tensor& ours, const Tensor& want) {
  return norm_of(ours.to(kDouble).sub(want)) / norm_of(want);
}

void expect_product(const Sizes& s, bool turned_a, bool turned_b, c10::ScalarType type) {
  const Tensor a = factor(1, s.m, s.k, turned_a, type);
  const Tensor b = factor(2, s.k, s.n, turned_b, type);
  const Tensor whole = rule_tensor(3, {s.m, s.n + 3}, 1.0).to(kFloat);
  const Tensor before = whole.clone();
  const Tensor c = whole.narrow(1, 1, s.n);
  const Tensor want = at::mm(a.to(kDouble), b.to(kDouble));
  const double limit = wide_product_rounds(type) ? 4e-3 : 1e-6;
  const std::string what = std::to_string(s.m) + " x " + std::to_string(s.n) + " x " +
                           std::to_string(s.k) + (turned_a ? " a^T" : "") +
                           (turned_b ? " b^T" : "");
  wide_product(c, a, b, true);
  const Tensor sum = want.add(before.narrow(1, 1, s.n).to(kDouble));
  EXPECT_LT(relative(c, sum), limit) << what;
  wide_product(c, a, b, false);
  EXPECT_LT(relative(c, want), limit) << what;
  for (const std::int64_t column : {std::int64_t{0}, s.n + 1, s.n + 2}) {
    EXPECT_TRUE(whole.select(1, column).equal(before.select(1, column))) << what;
  }
}

TEST(WideProduct, EqualsTheExactOne) {
  for (const auto type : {c10::ScalarType::BFloat16, c10::ScalarType::Half}) {
    for (const Sizes& sizes : kSizes) {
      for (const int layout : {0, 1, 2, 3}) {
        expect_product(sizes, (layout & 1) != 0, (layout & 2) != 0, type);
      }
    }
  }
}

// A tile, or nothing: on the meta device as on the host. There oneDNN takes scratch for a product
// in fp16 where the CPU multiplies fp16.
TEST(WideProduct, ScratchIsBoundedAndCounted) {
  install_counting_allocators();
  for (const auto type : {c10::ScalarType::BFloat16, c10::ScalarType::Half}) {
    const auto peak = [type](CountedDevice counted, at::Device device) {
      const auto narrow = at::TensorOptions().dtype(type).device(device);
      const Tensor a = at::empty({1100, 3}, narrow).zero_();
      const Tensor b = at::empty({3, 1200}, narrow).zero_();
      const Tensor c = at::empty({1100, 1200}, narrow.dtype(kFloat)).zero_();
      const std::int64_t before = allocation_count(counted).live;
      reset_allocation_peak(counted);
      wide_product(c, a, b, true);
      return allocation_count(counted).peak - before;
    };
    const std::int64_t host = peak(CountedDevice::kHost, c10::DeviceType::CPU);
    const std::int64_t tile = wide_product_rounds(type) ? kWideTile * kWideTile * 2 : 0;
    EXPECT_EQ(peak(CountedDevice::kMeta, c10::DeviceType::Meta), tile);
    EXPECT_GE(host, tile);
    EXPECT_LE(host, tile + (type == c10::ScalarType::Half ? 2 << 20 : 0));
  }
}

}  // namespace
}  // namespace sluice::testing
