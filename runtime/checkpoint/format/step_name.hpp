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
  std::int64_t attempt = 0;  // how many of this step were complete before
};
[[nodiscard]] std::string step_name(std::int64_t step, std::int64_t attempt);
// nullopt where it is no step directory's name, written exactly so.
[[nodiscard]] std::optional<StepName> parse_step_name(std::string_view name);

// Manifest first and durably, then the rest, then the directory (the caller syncs its parent). What
// is not ours in there (a directory) stays, and so does the directory then.
void remove_checkpoint(FileSystem& files, const std::string& path);

}  // namespace sluice
