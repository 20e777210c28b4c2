// `sluice checkpoint convert`: a checkpoint written again.
#include "base/bytes.hpp"
#include "base/error.hpp"
#include "runtime/checkpoint/io/convert.hpp"
#include "runtime/cli/command_output.hpp"
#include "runtime/cli/commands.hpp"
#include "runtime/cli/setup/weights_setup.hpp"

namespace sluice {

int run_checkpoint_convert(const CheckpointCommand& command) {
  if (command.weights_only && !command.moments.empty()) {
    throw ConfigError("--moments " + command.moments +
                      " with --weights-only, which leaves them out: give one of the two");
  }
  check_holds_no_checkpoint(command.out);
  FileSystem& files = local_file_system();
  Checkpoint from = open_checkpoint(files, command.path);
  ConvertOptions options{.files = command.files, .weights_only = command.weights_only};
  if (!command.moments.empty()) {
    options.moments = command.moments == "bf16" ? TensorDType::kBF16 : TensorDType::kF32;
  }
  const WriterLock lock = lock_output(command.out, "`sluice checkpoint convert`");
  (void)carry_companions(files, companions_of(from.path()), command.out);
  const std::string path = convert(files, from, command.out, options);
  const Manifest written = open_checkpoint(files, path, OpenCheck::kManifest).manifest();
  print(path + ": step " + std::to_string(written.step) + ", " +
        std::to_string(written.files.size()) +
        (written.files.size() == 1 ? " file, " : " files, ") + format_bytes(written.bytes()) +
        " (" + from.path() + ": " + std::to_string(from.manifest().files.size()) + ", " +
        format_bytes(from.manifest().bytes()) + ")\n");
  return 0;
}

}  // namespace sluice
