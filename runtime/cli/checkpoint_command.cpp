// `sluice checkpoint`: lists, verifies and exports checkpoints.
#include <filesystem>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "configs/reader.hpp"
#include "runtime/bench/table.hpp"
#include "runtime/checkpoint/format/step_name.hpp"
#include "runtime/checkpoint/hf/hf_config.hpp"
#include "runtime/checkpoint/hf/hf_import.hpp"
#include "runtime/checkpoint/hf/hf_json.hpp"
#include "runtime/checkpoint/io/writer_lock.hpp"
#include "runtime/cli/checkpoint_json.hpp"
#include "runtime/cli/checkpoint_tokenizer.hpp"
#include "runtime/cli/command_output.hpp"
#include "runtime/cli/commands.hpp"
#include "runtime/cli/hf_tokenizer.hpp"
#include "runtime/cli/setup/weights_setup.hpp"
#include "runtime/data/data_sets.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr int kDamaged = 4;

std::string layout_text(const WorldLayout& layout) {
  std::string text = std::to_string(layout.world) + (layout.world == 1 ? " rank" : " ranks");
  if (layout.tensor > 1) text += ", tensor " + std::to_string(layout.tensor);
  if (layout.pipeline > 1) text += ", pipeline " + std::to_string(layout.pipeline);
  return text + ", stage " + std::to_string(layout.zero_stage);
}

std::string mark_of(const CheckpointSummary& checkpoint) {
  if (checkpoint.complete) return checkpoint.is_latest ? "latest" : "";
  return checkpoint.is_latest ? "latest, not complete" : "not complete";
}

// `path` with the folder's own name at its end. The name of a checkpoint's folder is its step, and
// "." and ".." have no name.
std::string by_own_name(const std::string& path) {
  const std::string bare = path.substr(0, path.find_last_not_of('/') + 1);
  const std::string name = fs::path(bare).filename().string();
  if (name != "." && name != "..") return path;
  std::error_code failed;
  const fs::path own = fs::canonical(bare, failed);
  return failed ? path : own.string();
}

// The checkpoints to look at: one, or every step of a folder that claims to be complete.
std::vector<std::string> steps_of(const std::string& given) {
  FileSystem& files = local_file_system();
  if (!exists(given)) throw IoError("there is no folder " + given, given);
  const std::string path = checkpoints_in(files, by_own_name(given));
  if (exists(join_path(path, kManifestName))) return {path};
  std::vector<std::string> steps;
  for (const CatalogEntry& entry : catalog(files, path)) {
    if (entry.has_manifest) steps.push_back(join_path(path, entry.name));
  }
  if (steps.empty()) {
    throw IoError(path +
                      ": there is no complete checkpoint here; `sluice checkpoint ls` shows what "
                      "there is",
                  path);
  }
  return steps;
}

// Folders that may hold the model's companion files, the likeliest first.
std::vector<std::string> companion_folders(const CheckpointCommand& command,
                                           const Checkpoint& checkpoint, const RunConfig& run) {
  std::vector<std::string> folders;
  const auto add = [&folders](const std::string& path) {
    if (path.empty() || path == "bytes") return;
    std::error_code ignored;
    folders.push_back(fs::is_directory(path, ignored) ? path : parent_path(path));
  };
  if (!command.tokenizer.empty() && !exists(command.tokenizer)) {
    throw IoError("--tokenizer: there is no " + command.tokenizer, command.tokenizer);
  }
  add(command.tokenizer);
  const std::string beside = companions_of(checkpoint.path());
  if (exists(beside)) add(beside);
  add(run.data.tokenizer);
  add(run.model.from);
  return folders;
}

// Of a checkpoint that has its tokenizer: the folders of its files.
std::vector<std::string> tokenizer_folders(const CheckpointCommand& command,
                                           const TokenizerRecord& record, const std::string& path) {
  std::vector<std::string> folders;
  std::error_code ignored;
  if (fs::is_directory(command.tokenizer, ignored)) folders.push_back(command.tokenizer);
  if (!record.files.empty()) folders.push_back(path);
  return folders;
}

// data.tokenizer of a checkpoint without a tokenizer: the first of these folders with a supported
// one; empty if there is none.
std::string tokenizer_of_old(const CheckpointCommand& command,
                             const std::vector<std::string>& folders, const RunConfig& run) {
  if (command.tokenizer.empty() && run.data.tokenizer == "bytes") {
    return reads_text(run.data) ? "bytes" : "";
  }
  for (const std::string& folder : folders) {
    try {
      (void)make_tokenizer(folder);
      return folder;
    } catch (const Error&) {
      continue;  // of another kind, or none: its files are copied and no more
    }
  }
  return "";
}

// The checkpoint's own template, or of an old checkpoint the file that the run used.
void settle_chat_template(const Checkpoint& checkpoint, DataOptions& data) {
  std::string& path = data.chat_template;
  if (const std::string own = own_chat_template(checkpoint); !own.empty()) path = own;
  if (data.sft.empty() || path.empty() || exists(path)) return;
  log_warning("checkpoint " + checkpoint.path() +
              " was saved without its chat template, and its data.chat_template " + path +
              " is not there; copy that file to the folder as chat_template.jinja");
  path.clear();
}

// The config.json of the model's origin; empty if none is of a model of this size.
std::string carried_config(const std::vector<std::string>& folders, const ModelOptions& model) {
  for (const std::string& folder : folders) {
    const std::string path = join_path(folder, "config.json");
    if (!exists(path)) continue;
    try {
      const ModelOptions there = read_hf_config(path);
      if (there.type != model.type || there.layers != model.layers ||
          there.hidden != model.hidden) {
        continue;
      }
    } catch (const Error&) {
      continue;  // of another model
    }
    return read_text(local_file_system(), path, HfJsonLimits().bytes);
  }
  return "";
}

// A model from elsewhere may be taken for a checkpoint.
void refuse_hf_folder(const std::string& path) {
  const bool is_checkpoint =
      exists(join_path(path, kManifestName)) || exists(join_path(path, kLatestName));
  if (is_checkpoint || !exists(join_path(path, "config.json"))) return;
  throw ConfigError(path +
                    " is a Hugging Face folder, which an export would make, and no checkpoint of "
                    "this program; `sluice checkpoint import " +
                    path + " -o DIR` makes a checkpoint of it");
}

DType dtype_of(const std::string& name) {
  return name == "bf16" ? DType::kBFloat16 : name == "fp16" ? DType::kFloat16 : DType::kFloat32;
}

}  // namespace

int run_checkpoint_ls(const CheckpointCommand& command) {
  if (!exists(command.path)) throw IoError("there is no folder " + command.path, command.path);
  const std::string path = checkpoints_in(local_file_system(), by_own_name(command.path));
  const std::vector<CheckpointSummary> found = ls(local_file_system(), path);
  if (command.json) {
    print(ls_json(found));
    return 0;
  }
  if (found.empty()) {
    print("no checkpoints in " + path + "\n");
    return 0;
  }
  std::vector<std::vector<std::string>> rows{{"name", "step", "size", "saved at", "by", ""}};
  for (const CheckpointSummary& c : found) {
    rows.push_back({c.name, std::to_string(c.step), c.complete ? format_bytes(c.bytes) : "?",
                    c.saved_at, c.complete ? layout_text(c.layout) : "", mark_of(c)});
  }
  std::string text = format_table(rows);
  for (const CheckpointSummary& c : found) {
    if (!c.complete) text += c.name + ": " + c.why_not + "\n";
  }
  print(text);
  return 0;
}

int run_checkpoint_verify(const CheckpointCommand& command) {
  std::vector<VerifiedCheckpoint> verified;
  bool sound = true;
  std::string text;
  for (const std::string& path : steps_of(command.path)) {
    verified.push_back({path, verify(local_file_system(), path)});
    const VerifyReport& report = verified.back().report;
    sound = sound && report.sound();
    text += path + ": " + counted(report.files, "file") + ", " + format_bytes(report.bytes) +
            (report.sound() ? ": sound\n"
                            : ": " + counted(std::ssize(report.defects), "defect") + "\n");
    for (const Defect& defect : report.defects) text += "  " + defect.what + "\n";
  }
  print(command.json ? verify_json(verified) : text);
  return sound ? 0 : kDamaged;
}

int run_checkpoint_export(const CheckpointCommand& command) {
  FileSystem& files = local_file_system();
  check_not_written({{"-o", command.out}}, kOutputPatience);
  refuse_hf_folder(command.path);
  Checkpoint checkpoint = open_checkpoint(files, command.path);
  const LoadedConfig config = load_config_text(join_path(checkpoint.path(), kManifestName),
                                               checkpoint.manifest().run.config, {});
  RunConfig run = config.run;
  ModelOptions& model = run.model;
  if (model.vocab == 0) model.vocab = stored_vocab(checkpoint);
  const std::vector<std::string> folders = companion_folders(command, checkpoint, run);
  HfExportOptions options;
  options.dtype = dtype_of(command.dtype);
  options.shard_bytes = command.shard_bytes;
  options.carried_config = carried_config(folders, model);
  options.companions = folders;
  const TokenizerRecord& record = checkpoint.manifest().run.tokenizer;
  settle_chat_template(checkpoint, run.data);
  if (record.known() && !command.tokenizer.empty()) {
    check_is_own_tokenizer(checkpoint, command.tokenizer, "--tokenizer");
  }
  if (record.known()) {
    options.companions = tokenizer_folders(command, record, checkpoint.path());
    add_tokenizer(options, own_tokenizer(checkpoint), record, run);
  } else if (const std::string spec = tokenizer_of_old(command, folders, run); !spec.empty()) {
    add_tokenizer(options, spec, record, run);
  }
  const HfExportResult result =
      export_hf(files, command.out, make_model_spec(model), checkpoint_reader(checkpoint), options);
  if (result.companions == 0) {
    log_warning(
        "no tokenizer files go with it: the checkpoint knows of none; name their folder "
        "with --tokenizer");
  }
  print(command.out + ": step " + std::to_string(checkpoint.manifest().step) + ", " +
        std::to_string(result.files.size()) + " files, " + format_bytes(result.bytes) + " of " +
        command.dtype + " weights\n");
  return 0;
}

}  // namespace sluice
