// An accelerate file of distributed_type DEEPSPEED: the DeepSpeed configuration that accelerate
// builds from the file, and the ranks. Not thread-safe while it runs.
//
//     AccelerateDeepSpeed made = map_accelerate_deepspeed(file, options, draft);
//     made.config_file.empty() ? parse_deepspeed(made.config, ...) : ... read that file ...
#pragma once

#include <map>
#include <string>
#include <vector>

#include "configs/migrate/launcher/accelerate_file.hpp"
#include "configs/migrate/launcher/launch_line.hpp"

namespace sluice::migrate {

struct AccelerateDeepSpeed {
  std::string config_file;  // deepspeed_config_file; its configuration takes the place of `config`
  HjsonNode config;         // with the places of the accelerate file
  // DeepSpeed path -> JSON: what accelerate puts in place of "auto", without the Trainer's values.
  std::map<std::string, std::string, std::less<>> autos;
  int world = 0;              // ranks; 0: not known
  std::string hostfile_text;  // lines to write into launch.hostfile, or ""
  std::vector<std::string> commands;
  std::string start_note;              // how to reach machines that the file does not name, or ""
  std::vector<MigrationError> errors;  // "config.yaml:3:5: deepspeed_config.zero_stage: ..."
};

// REQUIRES: no errors in `file`. Adds every key of the file to the draft.
[[nodiscard]] AccelerateDeepSpeed map_accelerate_deepspeed(const AccelerateFile& file,
                                                           const LaunchOptions& options,
                                                           MigrationDraft& draft);

// What accelerate refuses in the configuration that deepspeed_config_file names. Adds the
// accumulation of 1 that accelerate adds where the file has none.
[[nodiscard]] std::vector<MigrationError> complete_deepspeed_file(const AccelerateFile& file,
                                                                  HjsonNode& root);

// The value that accelerate uses for an "auto" which nothing fills: clipping 1.0, accumulation 1.
[[nodiscard]] std::map<std::string, std::string, std::less<>> accelerate_fallbacks();

}  // namespace sluice::migrate
