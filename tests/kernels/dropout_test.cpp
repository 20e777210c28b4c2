#include "kernels/cpu/dropout.hpp"

#include "base/error.hpp"
#include "kernels/cpu/philox.hpp"
#include "tests/kernels/support.hpp"

namespace sluice::testing {
namespace {

constexpr double kP = 0.3;

// Values whose quotient by 1 - p and sums with the residual need rounding in every dtype.
TEST(DropoutAdd, AppliesTheMaskOfFillDropoutMask) {
  for (const std::int64_t n : kSizes) {
    std::vector<float> mask(static_cast<std::size_t>(n));
    fill_dropout_mask(std::span<float>(mask), 7, 9, 5, kP);
    for (const DType dtype : kDTypes) {
      const std::vector<std::byte> x = as_bytes(normal_values(n, 1), dtype);
      const std::vector<std::byte> base = as_bytes(normal_values(n, 2), dtype);
      for (const bool residual : {false, true}) {
        std::vector<float> want(mask.size());
        convert(want.data(), DType::kFloat32, x.data(), dtype, n);
        std::vector<float> add(mask.size());
        convert(add.data(), DType::kFloat32, base.data(), dtype, n);
        for (std::size_t i = 0; i < want.size(); ++i) {
          want[i] = rounded(want[i] * mask[i] + (residual ? add[i] : 0.0F), dtype);
        }
        expect_same_bits_everywhere([&] {
          std::vector<std::byte> out = x;  // in the place of x
          dropout_add({.out = out.data(),
                       .x = out.data(),
                       .residual = residual ? base.data() : nullptr,
                       .dtype = dtype,
                       .n = n,
                       .p = kP,
                       .seed = 7,
                       .stream = 9,
                       .first_element = 5});
          std::vector<float> got(mask.size());
          convert(got.data(), DType::kFloat32, out.data(), dtype, n);
          EXPECT_EQ(got, want);
          return out;
        });
      }
    }
  }
}

TEST(DropoutAdd, CutsGiveTheSameValues) {
  const std::vector<float> x = normal_values(5000, 3);
  std::vector<float> whole(5000);
  std::vector<float> cut(5000);
  const DropoutArgs args{.out = whole.data(), .x = x.data(), .n = 5000, .p = kP, .seed = 1};
  dropout_add(args);
  DropoutArgs part = args;
  part.out = cut.data();
  part.n = 2049;
  dropout_add(part);
  dropout_add({.out = cut.data() + 2049,
               .x = x.data() + 2049,
               .n = 5000 - 2049,
               .p = kP,
               .seed = 1,
               .first_element = 2049});
  EXPECT_EQ(whole, cut);
}

TEST(DropoutAdd, RefusesWhatIsNoProbability) {
  std::vector<float> x(4);
  const DropoutArgs args{.out = x.data(), .x = x.data(), .n = 4, .p = 1.0};
  EXPECT_THROW(dropout_add(args), Error);
}

}  // namespace
}  // namespace sluice::testing
