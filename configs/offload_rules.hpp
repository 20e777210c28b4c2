// Rules of the `offload:` section: the stages that allow a placement, and the folders for NVMe
// states. Reads the folders of offload.nvme_path and changes nothing. Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "configs/run_config.hpp"

namespace sluice {

struct BrokenRule {
  std::string_view key;   // the one most to blame: "offload.parameters"
  std::string what;       // what it needs, why, and what to write
  bool of_model = false;  // the rule compares with a size of the model
};

[[nodiscard]] std::vector<BrokenRule> broken_offload_rules(const RunConfig& run);

// True if a state lives on NVMe.
[[nodiscard]] bool is_on_nvme(const OffloadOptions& offload);

// Folders of nvme_path on a tmpfs: states there take host memory that no budget counts. Empty if no
// state lives on NVMe.
[[nodiscard]] std::vector<std::string> folders_in_memory(const OffloadOptions& offload);

// One kind of state that `offload:` places.
struct PlacedState {
  std::string_view key;   // "offload.optimizer"
  std::string_view name;  // "optimizer"
  Tier tier = Tier::kDevice;
};
// Optimizer, parameters, gradients, activations.
[[nodiscard]] std::vector<PlacedState> placed_states(const OffloadOptions& offload);

}  // namespace sluice
