// The decision of a step: the same text on the host and on a GPU.
#include "kernels/cuda/step_clip.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace sluice::cuda {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

StepClip decide(const std::vector<double>& sums, const std::vector<double>& losses,
                const ClipInput& in) {
  return decide_step(sums.data(), std::ssize(sums), losses.data(), std::ssize(losses), in);
}

TEST(StepClip, AddsInOrderAndScales) {
  // Another order of these has other bits.
  const std::vector<double> sums{1e16, 1, 1, 3}, losses{0.1, 0.2, 0.3};
  const ClipInput in{.most = 0.25, .loss_scale = 1024, .loss_divisor = 7};
  const StepClip step = decide(sums, losses, in);
  EXPECT_EQ(step.squares, 1e16 + 1 + 1 + 3);
  EXPECT_EQ(step.loss_sum, 0.1 + 0.2 + 0.3);
  const double norm = std::sqrt(step.squares) / 1024;
  EXPECT_EQ(norm_of(step.squares, in), norm);
  const double coefficient = std::min(1.0, 0.25 / (norm + 1e-6));
  EXPECT_EQ(clip_coefficient(norm, in), coefficient);
  EXPECT_EQ(step.grad_scale, static_cast<float>(coefficient / 1024));
  EXPECT_EQ(step.updates, 1);
}

TEST(StepClip, SmallNormsAndNoClipKeepGradients) {
  EXPECT_EQ(decide({0.04}, {1}, {.most = 1, .loss_scale = 4}).grad_scale, 0.25F);
  EXPECT_EQ(decide({1e300}, {1}, {.most = 0, .loss_scale = 4}).grad_scale, 0.25F);
  EXPECT_EQ(decide({0}, {0}, {.most = 1}).grad_scale, 1.0F);
}

TEST(StepClip, WhatIsNotFiniteUpdatesNothing) {
  for (const double bad : {kInfinity, kNan}) {
    EXPECT_EQ(decide({1, bad, 1}, {1}, {.most = 1}).updates, 0) << bad;
    EXPECT_EQ(decide({1}, {1, bad}, {.most = 1}).updates, 0) << bad;
    EXPECT_EQ(decide({1}, {-bad}, {}).updates, 0) << bad;
  }
  EXPECT_EQ(clip_coefficient(kNan, {.most = 1}), 1) << "as a step that was thrown away reports it";
  EXPECT_EQ(decide({}, {}, {}).updates, 1);
}

}  // namespace
}  // namespace sluice::cuda
