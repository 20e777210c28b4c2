// Names in a directory of checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kLatestName = "latest";

struct StepName {
  std::int64_t step = 0;
  std::int64_t attempt = 0;  // number of earlier complete checkpoints of this step
};
[[nodiscard]] std::string step_name(std::int64_t step, std::int64_t attempt);
// nullopt unless step_name() writes exactly this name.
[[nodiscard]] std::optional<StepName> parse_step_name(std::string_view name);

// Removes the manifest first and durably, then the other files, then the directory; the caller
// syncs the parent. A directory inside is not part of a checkpoint: it stays, and so does its
// parent.
void remove_checkpoint(FileSystem& files, const std::string& path);

}  // namespace sluice
