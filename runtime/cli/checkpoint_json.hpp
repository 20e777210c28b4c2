// Results of `sluice checkpoint` as JSON.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint/io/checkpoint_catalog.hpp"

namespace sluice {

struct VerifiedCheckpoint {
  std::string path;
  VerifyReport report;
};

[[nodiscard]] std::string ls_json(const std::vector<CheckpointSummary>& checkpoints);
[[nodiscard]] std::string verify_json(const std::vector<VerifiedCheckpoint>& checkpoints);

}  // namespace sluice
