// Runs of the program with all states off-device, and their processes and files.
#pragma once

#include <string>
#include <vector>

#include "tests/cli/program.hpp"

namespace sluice::testing {

// Arguments that place optimizer, parameters, gradients and activations on this tier. NVMe states
// go to swap/, through the page cache if the scratch folder's file system lacks O_DIRECT.
inline std::string everything_on(const std::string& tier) {
  std::string text = " --set recompute.mode=full";
  for (const char* state : {"optimizer", "parameters", "gradients", "activations"}) {
    text += std::string(" --set offload.") + state + "=" + tier;
  }
  if (tier == "nvme") text += " --set offload.nvme_path=swap --set offload.direct=false";
  return text;
}

// Names in a folder of the scratch folder; empty if the folder is missing.
inline std::vector<std::string> files_in(const Scratch& scratch, const std::string& folder) {
  std::vector<std::string> names;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path(folder), missing)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

}  // namespace sluice::testing
