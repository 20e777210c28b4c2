// The positions of parameters in the flat tensors of ZeRO's ranks. Only for the sources of this
// folder.
//
// clang-format off
//   ZeRO-1, 2   a group's parameters follow one another, with the padding that DeepSpeed states;
//               every rank has an equal part of the whole, in order
//   ZeRO-3      each parameter is cut into equal parts, one for each rank; a rank's parts of a
//               group's parameters follow one another
// clang-format on
//
// `param_shapes` has names and shapes in this order. No file states the rank that wrote it; for
// ZeRO-1 and 2 `param_slice_mappings` proves the rank.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/import/deepspeed_files.hpp"
#include "runtime/checkpoint/import/import_tensor.hpp"

namespace sluice {

// The shape of a pickled torch.Size. Throws CheckpointError for another value, and for a shape of
// more elements than any file has.
[[nodiscard]] std::vector<std::int64_t> pickled_shape(const TorchFile& file,
                                                      const PickleValue& value,
                                                      const std::string& name);
// Elements [rank * part, (rank + 1) * part) of a parameter are rank `rank`'s.
[[nodiscard]] std::int64_t stage3_part(std::int64_t elems, int world);

class DeepSpeedShards {
 public:
  // Reads the places and checks them. Throws CheckpointError. `updates`: by the run's own counters.
  // `files` must outlive this object.
  DeepSpeedShards(const DeepSpeedFiles& files, bool weights_only, std::int64_t updates);

  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  [[nodiscard]] bool has(const std::string& name) const { return params_.contains(name); }
  // True if every rank has both moments. None exist before the first update.
  [[nodiscard]] bool moments() const { return moments_; }
  // REQUIRES: has(name); moments() for a moment.
  [[nodiscard]] OpenTensor open(const std::string& name, StateKind kind) const;
  // Adam's count as the optimizer gives it, or -1.
  [[nodiscard]] std::int64_t updates() const;

 private:
  struct Param {
    std::vector<std::int64_t> shape;
    std::int64_t elems = 0;
    std::size_t group = 0;
    std::int64_t at = 0;  // before it in the group (ZeRO-1, 2), or in each rank's part (ZeRO-3)
  };
  struct Flat {
    const PickleValue* value = nullptr;
    std::int64_t elems = 0;
  };
  using Group = std::array<Flat, 3>;  // by kind: weights, exp_avg, exp_avg_sq

  [[nodiscard]] CheckpointError error(int rank, const std::string& what, const std::string& tensor,
                                      const PickleValue& at) const;
  [[nodiscard]] const PickleValue* find(int rank, const PickleValue& in,
                                        std::string_view key) const;
  [[nodiscard]] Flat flat(int rank, const PickleValue* value, const std::string& what) const;
  [[nodiscard]] const Flat& part(int rank, std::size_t group, std::size_t kind = 0) const;

  void read_params();
  void read_weights(int rank);
  void read_moments(int rank, std::int64_t updates);
  void read_step(int rank, std::size_t group, const PickleValue& state, const PickleValue& base);
  [[nodiscard]] std::vector<std::int64_t> paddings(std::size_t group) const;
  void place_group(std::size_t group);
  void check_part(int rank, std::size_t group, std::int64_t elems) const;
  void check_mapping(int rank, std::size_t group) const;
  void place_stage3();

  const DeepSpeedFiles& files_;
  std::vector<std::vector<std::string>> listed_;  // by group of param_shapes, in order
  std::vector<std::string> names_;
  std::map<std::string, Param> params_;
  std::vector<std::vector<Group>> ranks_;  // by rank, then group
  std::vector<std::int64_t> steps_;        // Adam's count by group
  bool moments_ = false;
};

}  // namespace sluice
