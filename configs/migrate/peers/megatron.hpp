// Megatron-LM's command line as a configuration of Sluice: pretrain_gpt.py of core 0.19, started by
// torchrun, python or nothing. Pure functions; thread-safe.
//
//     Migration migration = migrate_megatron("torchrun --nproc_per_node 8 pretrain_gpt.py ...",
//     {});
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "configs/migrate/migration.hpp"

namespace sluice::migrate {

struct MegatronOptions {
  std::string file{};                   // that holds the arguments; "": a command line
  int world = 0;                        // ranks; 0: those of torchrun
  std::vector<std::string> settings{};  // --set: keys that the source need not give
  bool has_deepspeed_file = false;      // the caller reads the file of --deepspeed_config
};

// `arguments` is a command with its script, or the script's arguments alone. Newlines of a file
// separate words. Collects every mistake; throws nothing.
[[nodiscard]] Migration migrate_megatron(std::string_view arguments,
                                         const MegatronOptions& options);

}  // namespace sluice::migrate
