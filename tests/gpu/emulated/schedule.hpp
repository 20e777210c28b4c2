// The order in which the emulated GPU takes what a card does at the same time: the blocks of a
// grid, the warps of a block, the lanes of a warp. NULL_GPU_COMPUTES chooses it: `early` ascending,
// `late` descending, a number shuffled. A kernel that lacks a barrier gives other results with one
// of them.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace emulated_gpu {

class Schedule {
 public:
  // `text` is the value of NULL_GPU_COMPUTES; kernels with different names are shuffled
  // differently.
  Schedule(const std::string& text, const std::string& kernel);

  // Puts 0 ... n - 1 into `order`.
  void arrange(std::vector<std::uint32_t>& order, std::uint32_t n);

 private:
  enum class Kind { kAscending, kDescending, kShuffled };
  Kind kind_ = Kind::kAscending;
  std::mt19937_64 random_;
};

}  // namespace emulated_gpu
