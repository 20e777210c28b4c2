#include "kernels/cpu/philox.hpp"

#include <set>

#include "base/error.hpp"
#include "tests/kernels/support.hpp"

namespace sluice::testing {
namespace {

// Known answers of the authors' Random123 distribution (kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswers) {
  using Block = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox_block(0, 0, 0), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox_block(~0ULL, ~0ULL, ~0ULL),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox_block(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, ElementsDependOnTheirIndexAlone) {
  const std::int64_t first = (std::int64_t{1} << 34) + 5;  // the block number needs both words
  constexpr std::int64_t kCount = 20011;
  expect_same_bits_everywhere([&] {
    std::vector<float> whole(kCount);
    fill_normal(whole, 42, hash_name("h.0.attn.weight"), first, 0.0F, 0.02F);
    for (const std::int64_t begin : {0L, 1L, 3L, 63L, 64L, 65L, 9999L}) {
      for (const std::int64_t count : {1L, 2L, 63L, 64L, 130L}) {
        std::vector<float> part(static_cast<std::size_t>(count));
        fill_normal(part, 42, hash_name("h.0.attn.weight"), first + begin, 0.0F, 0.02F);
        EXPECT_EQ(std::memcmp(part.data(), whole.data() + begin, part.size() * sizeof(float)), 0)
            << begin << " " << count;
      }
    }
    return whole;
  });
}

TEST(Philox, NormalValuesFollowTheDefinition) {
  std::vector<float> got(4096);
  const std::uint64_t stream = hash_name("w");
  fill_normal(got, 7, stream, 0, 1.5F, 2.0F);
  for (std::uint64_t i = 0; i < got.size(); i += 2) {
    const auto words = philox_block(7, stream, i / 4);
    const double u = (words[i % 4] + 1.0) / 0x1p32;
    const double angle = 2 * M_PI * (words[i % 4 + 1] / 0x1p32);
    const double radius = std::sqrt(-2 * std::log(u));
    EXPECT_NEAR(got[i], 1.5 + 2 * radius * std::cos(angle), 1e-6);
    EXPECT_NEAR(got[i + 1], 1.5 + 2 * radius * std::sin(angle), 1e-6);
  }
}

TEST(Philox, NormalValuesHaveTheRightMoments) {
  constexpr std::size_t kCount = 1'000'000;
  std::vector<float> x(kCount);
  fill_normal(x, 1, 2, 0, 0.0F, 1.0F);
  double moments[5] = {};
  int beyond_two = 0;
  for (const float value : x) {
    double power = 1;
    for (double& moment : moments) {
      moment += power / kCount;
      power *= value;
    }
    beyond_two += std::abs(value) > 2.0F ? 1 : 0;
  }
  // Five standard errors of each.
  EXPECT_NEAR(moments[1], 0.0, 5e-3);
  EXPECT_NEAR(moments[2], 1.0, 7.1e-3);
  EXPECT_NEAR(moments[3], 0.0, 2e-2);
  EXPECT_NEAR(moments[4], 3.0, 5e-2);
  EXPECT_NEAR(beyond_two / double{kCount}, 0.0455, 1.05e-3);
}

TEST(Philox, NamesAndSeedsGiveOtherStreams) {
  std::set<std::uint64_t> streams;
  for (int layer = 0; layer < 100; ++layer) {
    for (const char* name : {"ln_1.weight", "ln_1.bias", "attn.weight"}) {
      streams.insert(hash_name("h." + std::to_string(layer) + "." + name));
    }
  }
  EXPECT_EQ(streams.size(), 300U);
  EXPECT_EQ(hash_name(""), 0xefd01f60ba992926U);  // fixed: runs rely on it
  const std::uint64_t ab[] = {1, 2};
  const std::uint64_t ba[] = {2, 1};
  const std::uint64_t a[] = {1};
  EXPECT_NE(hash_stream(ab), hash_stream(ba));
  EXPECT_NE(hash_stream(ab), hash_stream(a));
  std::vector<float> x(4);
  std::vector<float> y(4);
  fill_normal(x, 1, 5, 0, 0.0F, 1.0F);
  fill_normal(y, 2, 5, 0, 0.0F, 1.0F);
  EXPECT_NE(x, y);
}

TEST(Dropout, MaskIsRangeIndependentAndTheTwoFormsAgree) {
  constexpr std::int64_t kCount = 50257;
  for (const double p : {0.0, 0.1, 0.5, 0.999}) {
    expect_same_bits_everywhere([&] {
      std::vector<std::uint8_t> bytes(kCount);
      std::vector<std::uint8_t> cut(kCount);
      std::vector<float> floats(kCount);
      fill_dropout_mask(std::span(bytes), 3, 9, 17, p);
      fill_dropout_mask(std::span(cut).first(77), 3, 9, 17, p);
      fill_dropout_mask(std::span(cut).subspan(77), 3, 9, 17 + 77, p);
      fill_dropout_mask(std::span(floats), 3, 9, 17, p);
      EXPECT_EQ(bytes, cut);
      std::int64_t kept = 0;
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        kept += bytes[i];
        EXPECT_EQ(floats[i], bytes[i] != 0 ? static_cast<float>(1.0 / (1.0 - p)) : 0.0F);
      }
      EXPECT_NEAR(static_cast<double>(kept) / kCount, 1 - p, 5 * std::sqrt(p * (1 - p) / kCount));
      return bytes;
    });
  }
}

TEST(Dropout, ProbabilitiesOutsideTheRangeAreRefused) {
  std::vector<float> mask(1);
  for (const double p : {-0.1, 1.0, std::nan("")}) {
    EXPECT_THROW(fill_dropout_mask(std::span(mask), 0, 0, 0, p), Error);
  }
  EXPECT_THROW(fill_normal(mask, 0, 0, -1, 0.0F, 1.0F), Error);
}

}  // namespace
}  // namespace sluice::testing
