// `sluice migrate`: another trainer's configuration as a configuration of ours, with a report.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/error.hpp"
#include "configs/migrate/deepspeed/key_reference.hpp"
#include "configs/migrate/report.hpp"
#include "configs/migrate/write_yaml.hpp"
#include "configs/reader.hpp"
#include "runtime/checkpoint/hf/hf_config.hpp"
#include "runtime/cli/command_output.hpp"
#include "runtime/cli/commands.hpp"
#include "runtime/cli/migrate_memory.hpp"
#include "runtime/cli/setup/hf_setup.hpp"
#include "runtime/observe/file_io.hpp"
#include "runtime/observe/terminal.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using migrate::Migration;
using migrate::MigrationRequest;

constexpr int kRefused = 2;

void refuse_to_overwrite(const std::string& out) {
  std::error_code error;
  if (out.empty() || !fs::exists(fs::symlink_status(out, error))) return;
  throw ConfigError("-o " + out + ": the file is there already; name another one, or remove it");
}

// Width and blocks of the model, for sizes that DeepSpeed derives from them.
void take_sizes(MigrationRequest& request) {
  if (request.model.empty()) return;
  const std::string path = (fs::path(request.model) / "config.json").string();
  if (!exists(path)) {
    throw IoError("--model " + request.model + ": " + missing_model(request.model), path);
  }
  const ModelOptions model = read_hf_config(path);
  if (request.hidden > 0 && request.hidden != model.hidden) {
    throw ConfigError("--hidden-size " + std::to_string(request.hidden) + ": the model of " + path +
                      " has " + std::to_string(model.hidden) + "; leave the flag out");
  }
  request.hidden = model.hidden;
  request.layers = model.layers;
}

// Checks the result with the sizes of the model's folder, and plans it.
void try_model(const MigrationRequest& request, const std::string& name, Migration& migration) {
  if (request.model.empty() || migration.is_stopped()) return;
  LoadedConfig config = load_config_text(name, migrate::write_yaml(migration), {});
  try {
    settle_model_from(config);
  } catch (const ConfigError& error) {
    migration.errors.push_back({"", error.what()});
    return;
  }
  migrate::check_with_model(config, migration);
  if (!migration.is_stopped()) plan_migration(config, migration);
}

// Never replaces a file, also not one that was made since the start.
void write_new_file(const std::string& path, const std::string& text) {
  std::error_code error;  // of a folder that cannot be made: fopen says why
  if (fs::path(path).has_parent_path()) fs::create_directories(fs::path(path).parent_path(), error);
  std::FILE* file = std::fopen(path.c_str(), "wxe");
  const bool written = file != nullptr &&
                       std::fwrite(text.data(), 1, text.size(), file) == text.size() &&
                       std::fflush(file) == 0;
  const int code = errno;
  if (file != nullptr) std::fclose(file);
  if (!written) {
    throw IoError("cannot write " + path + ": " + std::generic_category().message(code), path,
                  code);
  }
}

void print_report(const MigrateCommand& command, const Migration& migration) {
  // The configuration has standard output for itself where no file takes it.
  const bool alone = command.check || !command.out.empty();
  std::FILE* to = alone ? stdout : stderr;
  const std::string text = migrate::report_text(migration, terminal_info(::fileno(to)).colors);
  std::fputs(text.c_str(), to);
  std::fflush(to);
}

}  // namespace

int run_migrate(MigrateCommand command) {
  if (command.keys) {
    print(migrate::deepspeed_keys_markdown());
    return 0;
  }
  const std::string as_told = command.out;
  if (is_standard_output(command.out)) command.out.clear();
  refuse_to_overwrite(command.out);
  take_sizes(command.request);
  if (!command.out.empty()) command.request.out = command.out;
  Migration migration = migrate::migrate(command.request);
  const std::string name = command.out.empty() ? "migrated.yaml" : command.out;
  try_model(command.request, name, migration);
  if (command.json) {
    print_beside(command.check ? "" : as_told, migrate::report_json(migration));
  } else {
    print_report(command, migration);
  }
  if (migration.is_stopped()) {
    std::fputs(migrate::error_text(migration).c_str(), stderr);
    return kRefused;
  }
  if (command.check) return 0;
  if (!command.out.empty()) {
    write_new_file(command.out, migrate::write_yaml(migration));
  } else if (!command.json || is_standard_output(as_told)) {
    print(migrate::write_yaml(migration));
  }
  return 0;
}

}  // namespace sluice
