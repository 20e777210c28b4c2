// What a search may change in a configuration, and how that is said on the command line. Pure.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/plan/step_profile.hpp"

namespace sluice {

struct Setting {
  std::string key;    // "zero.stage"
  std::string value;  // as after --set
  bool operator==(const Setting&) const = default;
};

// "--set zero.stage=3 --set recompute.mode=full", quoted as a shell needs it.
[[nodiscard]] std::string set_line(const std::vector<Setting>& set);

// What stands after --set of offload.nvme_path where a configuration names none.
inline constexpr char kNvmePlaceholder[] = "[DIR]";

[[nodiscard]] std::vector<Setting> differences(const EngineOptions& from, const EngineOptions& to);

// Where the states live.
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

// Meshes of `world` ranks that the model can be cut for and that share out `samples` a step evenly,
// the given one first: tensor-parallel ranks within a node, sequence parallelism with them where it
// is allowed (it costs no bytes and saves memory), schedules 1f1b, zero_bubble and interleaved with
// 2 and 4 chunks. Where stage_layers is given it stays, and meshes of other numbers of pieces are
// left out. `allowed`: the rules between keys; empty: all are.
struct MeshQuestion {
  EngineOptions options;
  int ranks_of_node = 1;
  std::int64_t samples = 1;
  std::function<bool(const EngineOptions&)> allowed;
};
[[nodiscard]] std::vector<ParallelOptions> list_meshes(const MeshQuestion& question);
// Sets the mesh, and the data-parallel ranks that it leaves of as many ranks as there were.
void set_mesh(EngineOptions& options, const ParallelOptions& mesh);

}  // namespace sluice
