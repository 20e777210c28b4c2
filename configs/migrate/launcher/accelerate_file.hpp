// The configuration file of `accelerate config` (YAML or JSON), as accelerate reads it: a tree of
// typed values, and the keys that describe machines and processes. Value types; thread-safe for
// readers.
//
//     AccelerateFile file = read_accelerate_file(text, "config.yaml");
//     if (file.distributed_type == "FSDP") ...;  // file.section("fsdp_config")
//     AccelerateJob job = map_accelerate_job(file, draft);
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "configs/migrate/hjson_reader.hpp"
#include "configs/migrate/migration.hpp"

namespace sluice::migrate {

struct AccelerateFile {
  std::string file;              // for places
  HjsonNode root;                // an object; meaningless when there are errors
  std::string distributed_type;  // "DEEPSPEED", "FSDP", "MULTI_GPU", "NO", ...
  std::string mixed_precision;   // "no", "fp16", "bf16", "fp8"; "no" where the file has none
  std::vector<MigrationError> errors;

  // The entries of "deepspeed_config", "fsdp_config" and the like; nullptr where the file has none.
  [[nodiscard]] const HjsonNode* section(std::string_view name) const;
};

// Collects every mistake: YAML's, unknown and duplicate keys, unknown words.
[[nodiscard]] AccelerateFile read_accelerate_file(const std::string& text, std::string_view file);

struct AccelerateJob {
  int world = 0;                         // num_processes; 0: not known
  int machines = 1;                      // num_machines
  std::vector<std::string> environment;  // "NAME=value", for the command that starts the run
};

// Adds every key outside the sections, but mixed_precision and the section of distributed_type:
// their meaning depends on distributed_type. Sections that distributed_type does not use are added
// as ignored. Sets keys of launch:. REQUIRES: no errors.
AccelerateJob map_accelerate_job(const AccelerateFile& file, MigrationDraft& draft);

// A note for a job of several machines whose names the file does not give.
// accelerate is started on every machine, and its file names one of them at most.
[[nodiscard]] std::string start_on_hosts(const AccelerateJob& job);

}  // namespace sluice::migrate
