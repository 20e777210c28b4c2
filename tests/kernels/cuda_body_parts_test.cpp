// Parts of the bodies of CUDA kernels that only the host's text shows.
#include <vector>

#include "kernels/cpu/dropout_threshold.hpp"
#include "kernels/cpu/philox.hpp"
#include "kernels/cuda/attention_body.hpp"
#include "kernels/cuda/fp8_body.hpp"
#include "tests/kernels/support.hpp"

namespace sluice::testing {
namespace {

TEST(CudaBodyParts, MasksBeginAtAnyElement) {
  constexpr double kP = 0.4;
  cuda::MaskPlace mask;
  mask.threshold = dropout_threshold(kP);
  mask.keep = static_cast<float>(1.0 / (1.0 - kP));
  mask.seed = 77;
  for (std::int64_t element = 0; element < 64; ++element) {
    std::vector<float> want(4);
    fill_dropout_mask(std::span<float>(want), 77, 9, element, kP);
    float got[4];
    cuda::mask_four(mask, 9, element, got);
    EXPECT_EQ(std::vector<float>(got, got + 4), want) << element;
  }
}

// A warp's stores and loads of the tile take 32 banks each: 4 words a quarter of a warp.
TEST(CudaBodyParts, LanesOfAWarpMeetInNoBank) {
  cuda::Fp8Tile tile{};
  const auto bank = [&](const std::uint32_t* word) { return (word - &tile.words[0][0][0]) % 32; };
  for (int group = 0; group < cuda::Fp8Tile::kGroups; ++group) {
    for (int j = 0; j < 8; ++j) {
      std::vector<bool> taken(32);
      for (int lane = 0; lane < 32; ++lane) {
        taken[static_cast<std::size_t>(bank(tile.group(lane % 8 * 8 + j, group) + lane / 8))] =
            true;
      }
      EXPECT_EQ(std::count(taken.begin(), taken.end(), true), 32);
    }
  }
}

}  // namespace
}  // namespace sluice::testing
