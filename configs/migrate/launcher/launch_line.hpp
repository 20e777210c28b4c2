// A command that starts a training today: deepspeed, accelerate launch, torchrun, or python. Every
// argument of the launcher becomes a key of the migration; the result also has the commands that
// start the same ranks with Sluice. Not thread-safe while it runs.
//
//     LaunchLine launch = map_launch_line("deepspeed --num_gpus 8 train.py --bf16", {...}, draft);
//     launch.world;             // 8
//     launch.script_arguments;  // --bf16
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "configs/migrate/launcher/accelerate_file.hpp"
#include "configs/migrate/migration.hpp"

namespace sluice::migrate {

enum class Launcher { kDeepSpeed, kAccelerate, kTorchrun, kPython };

// A file's text, or nullopt where the file cannot be read. "~/" is the home folder.
using TextReader = std::function<std::optional<std::string>(const std::string& path)>;

struct LaunchOptions {
  TextReader read;
  std::string config = "out.yaml";  // Sluice's configuration, for the commands
};

struct LaunchLine {
  Launcher launcher = Launcher::kPython;
  int world = 0;  // ranks; 0: not known
  std::string script;
  std::vector<std::string> script_arguments;
  std::string deepspeed_config;  // path or base64 that the script is given, or ""
  // The file of accelerate launch, with the arguments of the line in place of its keys; also where
  // no file is named.
  std::optional<AccelerateFile> accelerate;
  // Lines to write into launch.hostfile; "" where the source's file is used as it is.
  std::string hostfile_text;
  std::vector<std::string> environment;  // NAME=value, before the command
  std::vector<std::string> commands;     // start the run
  std::vector<MigrationError> errors;    // "--launch: argument 3: --num_gpus: cause; remedy"
};

[[nodiscard]] LaunchLine map_launch_line(std::string_view line, const LaunchOptions& options,
                                         MigrationDraft& draft);

}  // namespace sluice::migrate
