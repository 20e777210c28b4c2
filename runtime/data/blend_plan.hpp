// Which part of a blend a draw comes from: exact shares at every moment, and no stored index. Pure;
// thread-safe.
//
// The parts are the leaves of a binary tree. A node sends draw n to its left side if the rounded
// number n * share rises from n to n + 1, and numbers the draws of each side from 0. So each level
// adds at most half a draw of deviation: after n draws a part has n * weight of them, give or take
// half the depth of the tree (half a draw of 2 parts, one draw of 4, two of 16).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

struct BlendDraw {
  std::size_t part = 0;
  std::int64_t index = 0;  // draws of this part before this one
};

class BlendPlan {
 public:
  // Relative weights. REQUIRES: at least one, each above 0 and finite.
  explicit BlendPlan(const std::vector<double>& weights);
  // REQUIRES: draw >= 0. Every (part, index) is one draw's.
  [[nodiscard]] BlendDraw at(std::int64_t draw) const;

 private:
  std::vector<std::int64_t> sums_;  // of the weights before part i, in units of 2^-52 of their sum
};

}  // namespace sluice
