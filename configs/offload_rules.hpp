// Rules of the `offload:` section: which placement has a meaning with which stage, and where NVMe
// states can go. Looks at the folders of offload.nvme_path and changes nothing. Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "configs/run_config.hpp"

namespace sluice {

struct BrokenRule {
  std::string_view key;  // the one most to blame: "offload.parameters"
  std::string what;      // what it needs, why, and what to write
};

[[nodiscard]] std::vector<BrokenRule> broken_offload_rules(const RunConfig& run);

// Of nvme_path, those on a tmpfs: what lies there takes host memory that no budget counts.
[[nodiscard]] std::vector<std::string> folders_in_memory(const OffloadOptions& offload);

// A state that offload: places.
struct PlacedState {
  std::string_view key;   // "offload.optimizer"
  std::string_view name;  // "optimizer"
  Tier tier = Tier::kDevice;
};
// Optimizer, parameters, gradients, activations.
[[nodiscard]] std::vector<PlacedState> placed_states(const OffloadOptions& offload);

}  // namespace sluice
