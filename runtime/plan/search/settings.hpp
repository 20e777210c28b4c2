// The settings that a search may change, and their form on the command line. Pure.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/plan/step_profile.hpp"

namespace sluice {

struct Setting {
  std::string key;    // "zero.stage"
  std::string value;  // as in --set key=value
  bool operator==(const Setting&) const = default;
};

// "--set zero.stage=3 --set recompute.mode=full", quoted for a shell.
[[nodiscard]] std::string set_line(const std::vector<Setting>& set);

// Value of --set offload.nvme_path if a configuration names no directory.
inline constexpr char kNvmePlaceholder[] = "[DIR]";

[[nodiscard]] std::vector<Setting> differences(const EngineOptions& from, const EngineOptions& to);

// A placement of the states on tiers.
struct Rung {
  const char* name;
  Tier optimizer;
  Tier gradients;
  Tier parameters;
};
// From all on the device to all on NVMe.
[[nodiscard]] std::span<const Rung> placement_ladder();
[[nodiscard]] bool has_meaning(const Rung& rung, int zero_stage);
void place(EngineOptions& options, const Rung& rung);
// False where micro-batches would be summed in whole gradients that are not kept between them:
// zero.reduce_every step, of several micro-batches of stages 2 and 3 in micro order.
[[nodiscard]] bool keeps_what_it_sums(const EngineOptions& options);
// False where bf16 gradients would be rounded before they are complete: several micro-batches in
// micro order, or on the device several data-parallel ranks.
[[nodiscard]] bool stores_complete_gradients(const EngineOptions& options);

// Lists meshes of as many ranks as the options have, the given mesh first. Each mesh cuts the model
// and divides `samples` a step evenly. Tensor-parallel ranks stay within a node, with sequence
// parallelism if allowed (no extra bytes sent, less memory). Schedules are 1f1b, zero_bubble, and
// interleaved with 2 and 4 chunks. A given stage_layers excludes meshes with another number of
// pieces. `allowed`: the rules between keys; empty: all meshes are allowed.
struct MeshQuestion {
  EngineOptions options;
  int ranks_of_node = 1;
  std::int64_t samples = 1;
  std::function<bool(const EngineOptions&)> allowed;
};
[[nodiscard]] std::vector<ParallelOptions> list_meshes(const MeshQuestion& question);
// The configured size and powers of two that divide a rank's samples, in order.
[[nodiscard]] std::vector<std::int64_t> list_micro_batches(std::int64_t samples_of_rank,
                                                           std::int64_t configured,
                                                           std::int64_t most);
// Samples of a step of all ranks.
[[nodiscard]] std::int64_t samples_of_step(const EngineOptions& options);
// Sets the mesh and, for the same number of ranks, the data-parallel ranks.
void set_mesh(EngineOptions& options, const ParallelOptions& mesh);

}  // namespace sluice
