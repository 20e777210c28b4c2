// A checkpoint of DeepSpeed's in a folder of its own, for tests of reading it.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint/import/import_source.hpp"
#include "tests/runtime/checkpoint/deepspeed_writer.hpp"
#include "tests/runtime/checkpoint/test_folder.hpp"

namespace sluice::testing {

inline constexpr std::array kKinds{std::pair{StateKind::kMaster, "fp32"},
                                   std::pair{StateKind::kMoment1, "exp_avg"},
                                   std::pair{StateKind::kMoment2, "exp_avg_sq"}};

// All elements, row by row, from column 1 on before column 0.
inline std::vector<float> elements(const OpenTensor& tensor) {
  tensor.check_dtype();
  tensor.check_storage();
  const std::vector<std::int64_t>& shape = tensor.shape();
  const std::int64_t cols = shape.empty() ? 1 : shape.back();
  const std::int64_t rows = shape.size() == 2 ? shape[0] : 1;
  std::vector<float> values(static_cast<std::size_t>(rows * cols));
  const std::span<float> all(values);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto at = static_cast<std::size_t>(row * cols);
    if (cols > 1) tensor.read_row(row, 1, all.subspan(at + 1, static_cast<std::size_t>(cols - 1)));
    tensor.read_row(row, 0, all.subspan(at, 1));
  }
  tensor.let_go();
  return values;
}

// Sizes that divide by nothing, one of a single element, and a group smaller than the ranks.
inline WrittenZero odd_sizes() {
  WrittenZero zero;
  zero.groups = {{{"a.weight", {7, 5}}, {"b.weight", {3, 11}}, {"c.weight", {13}}, {"d", {1}}},
                 {{"e.bias", {1}}},
                 {{"f.bias", {9}}, {"g.bias", {17}}}};
  return zero;
}

class DeepSpeedFolder : public TestFolder {
 protected:
  DeepSpeedFolder() : TestFolder("deepspeed") {
    std::filesystem::create_directories(root_ / "global_step7");
  }

  [[nodiscard]] std::string step() const { return path("global_step7"); }
  void write(const WrittenZero& zero) const { write_zero(step(), zero); }
  [[nodiscard]] std::string file(int rank, const std::string& what = "optim") const {
    return step() + "/zero_pp_rank_" + std::to_string(rank) + "_mp_rank_00_" + what + "_states.pt";
  }
  [[nodiscard]] std::string refusal(bool weights_only = false) const {
    try {
      const auto source = open_import(step(), {.weights_only = weights_only});
      for (const std::string& name : source->tensors(0)) {
        (void)elements(source->open(0, name, StateKind::kMaster));
      }
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return "(accepted)";
  }
};

}  // namespace sluice::testing
