// A small model with odd sizes, cut by any layout, saved and read back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/io/checkpoint_catalog.hpp"
#include "runtime/checkpoint/io/checkpoint_load.hpp"
#include "runtime/checkpoint/io/checkpoint_save.hpp"
#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice::testing {

// A folder that goes with the object, in memory or in the working directory.
enum class Place { kMemory, kDisk };
class TempDir {
 public:
  explicit TempDir(Place place = Place::kMemory);
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct TestParam {
  std::string name;
  std::vector<std::int64_t> shape;
};
// Vocabulary 257, hidden 7, a convolution-like tensor of four dimensions, a scalar.
[[nodiscard]] const std::vector<TestParam>& test_model();

[[nodiscard]] const std::vector<TestParam>& small_model();

// Element `index` of a parameter's state, after `step` steps: exact in bf16.
[[nodiscard]] float value_at(const std::string& param, StateKind kind, std::int64_t step,
                             std::int64_t index);

// Each rank's ranges: tensor-parallel boxes along dimension `dim` of each parameter (cut unevenly,
// at random), of those flat shards over dp (also uneven), the parts dealt to ranks. Covers all.
using Layout = std::vector<std::vector<StateRange>>;
struct LayoutOptions {
  int dp = 1, tp = 1;
  TensorDType moments = TensorDType::kF32;
  bool uneven = false;
};
[[nodiscard]] Layout make_layout(const std::vector<TestParam>& model, const LayoutOptions& options,
                                 std::mt19937& random);

// Global element numbers of a range, in its order, by walking them one by one.
[[nodiscard]] std::vector<std::int64_t> elements(const StateRange& range);
// The bytes of a range of the model at `step`, by walking its elements one by one: the oracle.
[[nodiscard]] std::vector<std::byte> expected_bytes(const StateRange& range, std::int64_t step);

[[nodiscard]] RunState test_run_state(std::int64_t step);

// One process plays all ranks.
SaveTarget save(FileSystem& files, const std::string& dir, std::int64_t step, const Layout& layout,
                std::int64_t block_bytes = 64);
// Throws, or returns after comparing every range of the layout with the oracle (EXPECT), read at
// once and in parts.
void expect_loads(FileSystem& files, const std::string& path, std::int64_t step,
                  const Layout& layout);

// By Checkpoint::read_in_parts, through three pages' worth of windows.
[[nodiscard]] std::vector<std::vector<std::byte>> read_in_small_parts(
    Checkpoint& checkpoint, std::span<const StateRange> ranges);

void flip_bit(const std::string& path, std::int64_t byte, int bit = 0);

}  // namespace sluice::testing
