#include "configs/migrate/migrate_deepspeed_job.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "configs/migrate/deepspeed/deepspeed_migration.hpp"
#include "configs/migrate/deepspeed/deepspeed_source.hpp"
#include "configs/migrate/launcher/accelerate_config.hpp"
#include "configs/migrate/launcher/launch_line.hpp"
#include "configs/migrate/launcher/script_arguments.hpp"
#include "configs/migrate/launcher/trainer_steps.hpp"
#include "configs/migrate/launcher/training_arguments.hpp"
#include "configs/migrate/other_file.hpp"
#include "configs/suggest.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

std::string home_path(const std::string& path) {
  const char* home = std::getenv("HOME");
  return path.starts_with("~/") && home != nullptr ? home + path.substr(1) : path;
}

std::optional<std::string> text_of_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(home_path(path), error)) return std::nullopt;
  std::ifstream stream(home_path(path), std::ios::binary);
  if (!stream) return std::nullopt;
  std::string text(kMaxHjsonBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return text;
}

bool has_auto(const HjsonNode& node) {
  if (node.kind == HjsonNode::Kind::kText) return node.text == "auto";
  return std::any_of(node.entries.begin(), node.entries.end(),
                     [](const HjsonEntry& entry) { return has_auto(entry.value); });
}

bool is_trainers(const HjsonNode& root) {
  std::vector<std::string_view> names;
  for (const HjsonEntry& entry : root.entries) names.emplace_back(entry.key);
  return foreign_file(names) == ForeignFile::kTrainer;
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

void note_hosts(const std::string& text, Migration& migration) {
  if (!text.empty()) migration.notes.push_back("lines of launch.hostfile:\n" + text);
}

// The arguments of a launch line's script where the Trainer reads them; nullopt elsewhere. Without
// --deepspeed FILE the script may be another program: a value that the Trainer refuses says so.
std::optional<TrainerValues> trainer_of_script(const std::vector<std::string>& arguments,
                                               bool is_trainers) {
  const ScriptKind kind = script_kind(arguments);
  if (!is_trainers && kind == ScriptKind::kOther) return std::nullopt;
  TrainerValues values = read_training_arguments(arguments);
  const bool is_certain = is_trainers || kind == ScriptKind::kTrainer;
  if (!is_certain && !values.errors.empty()) return std::nullopt;
  return values;
}

// The arguments that the result does not follow.
void note_unread(const LaunchLine& launch, bool has_trainer_flag, Migration& migration) {
  const std::string unread = unread_arguments(launch.script_arguments);
  if (unread.empty()) return;
  migration.notes.push_back(
      unread + (has_trainer_flag ? "; --trainer gives the training arguments"
                                 : "; give each value that the run needs with --set, or arguments "
                                   "of Hugging Face's Trainer with --trainer"));
}

// The model that a script trains is not read: its arguments may name a place of the hub.
std::string model_note(const std::optional<LaunchLine>& launch,
                       const std::optional<TrainerValues>& trainer) {
  constexpr const char* kArgument = "model_name_or_path";
  std::string model = launch ? script_value(launch->script_arguments, kArgument) : "";
  if (trainer) {
    for (const TrainerArgument& argument : trainer->given) {
      if (argument.key == nullptr && argument.name == kArgument) model = argument.value.text;
    }
  }
  if (model.empty()) return "";
  return std::string(kArgument) + " " + printable(model, 200) +
         " was not read; give --model FOLDER with the Hugging Face folder of this model";
}

// A DeepSpeed file that the launch line or accelerate's file names, beside the one that was given.
std::string other_config_note(const std::string& named, const std::string& given) {
  const auto name = [](const std::string& path) { return std::filesystem::path(path).filename(); };
  if (named.empty() || given.empty() || name(named) == name(given)) return "";
  return "the job names the DeepSpeed file " + printable(named, 200) + ", and " +
         printable(given, 200) + " was read; leave the file out of the command to read the job's";
}

// `is_given`: by the command; else the launch line or accelerate's file names `config`.
DeepSpeedSource load_source(const std::string& config, bool is_given) try {
  return load_deepspeed_source(home_path(config));
} catch (const ConfigError&) {
  if (is_given) throw;
  throw ConfigError("the job names the DeepSpeed file " + in_quotes(config) +
                    ", and no such file is in this folder; start in the job's folder, or name the "
                    "file as the first argument");
}

// Megatron-DeepSpeed has model, mesh and schedule in its arguments alone.
void refuse_megatron(const LaunchLine& launch, std::vector<MigrationError>& errors) {
  const std::string_view name = megatron_argument_of(launch.script_arguments);
  if (name.empty()) return;
  errors.push_back(
      {"", "--launch: " + std::string(name) +
               ": an argument of Megatron-DeepSpeed, whose model and mesh would be lost; give the "
               "command with --megatron in place of --launch, beside the DeepSpeed file"});
}

class DeepSpeedJob {
 public:
  explicit DeepSpeedJob(const MigrationRequest& request)
      : request_(request), beside_draft_(beside_), world_(request.world) {
    options_.read = text_of_file;
    options_.config = request.out;
  }

  Migration run() {
    read_launch();
    read_accelerate();
    read_config();
    if (!errors_.empty()) return with_errors({.file = file_, .source = "DeepSpeed"});
    read_trainer();
    if (trainer_) map_trainer(*trainer_, context_, beside_draft_);
    const bool has_model = !request_.model.empty() || setting_of(request_.set, "model.from");
    if (!has_model) note(model_note(launch_, trainer_));
    Migration result = migrate_config();
    absorb(std::move(beside_), result);
    return with_errors(std::move(result));
  }

 private:
  void read_launch() {
    if (request_.launch.empty()) return;
    beside_.file = "--launch";
    launch_ = map_launch_line(request_.launch, options_, beside_draft_);
    append(errors_, launch_->errors);
    take_world(launch_->world, "--launch");
    append(beside_.commands, launch_->commands);
    note_hosts(launch_->hostfile_text, beside_);
    config_ = launch_->deepspeed_config;
  }

  void read_accelerate() {
    std::optional<AccelerateFile> file;
    if (!request_.accelerate.empty()) {
      file = read_accelerate_file(read_source("--accelerate", request_.accelerate),
                                  request_.accelerate);
    } else if (launch_ && launch_->accelerate) {
      file = launch_->accelerate;
    }
    if (!file) return;
    append(errors_, file->errors);
    if (!file->errors.empty()) return;
    if (file->distributed_type != "DEEPSPEED" && !has_configuration()) {
      errors_.push_back(
          {"", file->file + ": distributed_type " + file->distributed_type +
                   " has no DeepSpeed configuration; give the file with --accelerate, "
                   "without --launch"});
      return;
    }
    accelerate_file_ = file;
    beside_.file = file->file;
    accelerate_ = map_accelerate_deepspeed(*file, options_, beside_draft_);
    append(errors_, accelerate_->errors);
    take_world(accelerate_->world, "accelerate's file");
    if (beside_.commands.empty()) append(beside_.commands, accelerate_->commands);
    note_hosts(accelerate_->hostfile_text, beside_);
    if (!setting_of(request_.set, "launch.hostfile")) note(accelerate_->start_note);
    if (!accelerate_->config_file.empty()) config_ = accelerate_->config_file;
  }

  [[nodiscard]] bool has_configuration() const {
    return !request_.deepspeed.empty() || !config_.empty();
  }

  void note(const std::string& sentence) {
    if (!sentence.empty()) beside_draft_.note(sentence);
  }

  void read_config() {
    note(other_config_note(config_, request_.deepspeed));
    if (!request_.deepspeed.empty()) config_ = request_.deepspeed;
    if (config_.empty() && accelerate_ && accelerate_file_) {
      root_ = accelerate_->config;
      file_ = accelerate_file_->file;
      return;
    }
    if (config_.empty()) {
      if (!errors_.empty()) return;
      throw ConfigError(
          "no DeepSpeed configuration: name the file, or give --launch or --accelerate "
          "with a line or a file that names one");
    }
    const DeepSpeedSource source = load_source(config_, !request_.deepspeed.empty());
    file_ = source.name;
    if (const std::string other = other_file(source.text, file_); !other.empty()) {
      errors_.push_back({"", file_ + ": " + other});
      return;
    }
    HjsonDocument document = read_hjson(source.text);
    for (const HjsonProblem& problem : document.problems) {
      errors_.push_back({"", file_ + ":" + std::to_string(problem.line) + ":" +
                                 std::to_string(problem.column) + ": " + problem.what});
    }
    if (!document.problems.empty()) return;
    root_ = std::move(document.root);
    if (is_trainers(root_)) {
      errors_.push_back({"", file_ +
                                 ": these are training arguments of Hugging Face's Trainer, not a "
                                 "DeepSpeed configuration; give the file with --trainer, beside "
                                 "the DeepSpeed file"});
    }
    if (accelerate_file_) append(errors_, complete_deepspeed_file(*accelerate_file_, root_));
  }

  // Values of "auto" come from the Trainer or accelerate, so a launch line's script without
  // accelerate is the Trainer's where they stand.
  void read_trainer() {
    if (!request_.trainer.empty()) {
      trainer_ = trainer_values(request_.trainer);
    } else if (launch_) {
      trainer_ = trainer_of_script(launch_->script_arguments, has_auto(root_) && !accelerate_);
    }
    const bool has_flag = !request_.trainer.empty();
    if (launch_ && (has_flag || !trainer_)) note_unread(*launch_, has_flag, beside_);
    if (launch_) refuse_megatron(*launch_, errors_);
    if (!trainer_) return;
    append(errors_, trainer_->errors);
    append(beside_.notes, trainer_->notes);
    context_ = trainer_context(root_);
    context_.world = world_;
    context_.hidden = request_.hidden;
    context_.steps = count_setting(request_.set, "train.steps");
  }

  Migration migrate_config() {
    DeepSpeedOptions options{
        .file = file_, .hidden = request_.hidden, .layers = request_.layers, .set = request_.set};
    options.parse.world = world_;
    if (!request_.from_version.empty()) {
      const auto version = parse_deepspeed_version(request_.from_version);
      if (!version) {
        throw ConfigError("--from-version " + request_.from_version +
                          ": no version of DeepSpeed; expected one such as " +
                          kNewestDeepSpeed.text());
      }
      options.parse.version = *version;
    }
    if (accelerate_) options.parse.autos = accelerate_->autos;
    if (trainer_) {
      take_mismatches(trainer_mismatches(*trainer_, context_, root_, file_));
      for (const auto& [path, value] : trainer_autos(*trainer_, context_)) {
        options.parse.autos.insert_or_assign(path, value);
      }
      options.warmup_share = trainer_warmup_share(*trainer_, trainer_steps(*trainer_, context_));
    }
    if (accelerate_) options.parse.autos.merge(accelerate_fallbacks());
    return migrate_deepspeed(root_, options);
  }

  // The Trainer stops at a contradiction; another program need not.
  void take_mismatches(const std::vector<MigrationError>& found) {
    const bool is_guess = request_.trainer.empty() && launch_ &&
                          (accelerate_ || !has_auto(root_)) &&
                          script_kind(launch_->script_arguments) == ScriptKind::kLikelyTrainer;
    if (!is_guess) return append(errors_, found);
    for (const MigrationError& each : found) beside_.notes.push_back(each.text);
  }

  void take_world(int world, const std::string& from) {
    if (world == 0) return;
    if (world_ == 0 || world_ == world) {
      if (world_ == 0) world_from_ = from;
      world_ = world;
      return;
    }
    errors_.push_back({"", from + " starts " + counted(world, "rank") + ", and " + world_from_ +
                               " gives " + std::to_string(world_) + "; leave one of the two out"});
  }

  Migration with_errors(Migration result) {
    result.errors.insert(result.errors.begin(), errors_.begin(), errors_.end());
    return result;
  }

  const MigrationRequest& request_;
  Migration beside_;  // launch line and accelerate's file
  MigrationDraft beside_draft_;
  int world_;
  std::string world_from_ = "--world";
  LaunchOptions options_;
  std::optional<LaunchLine> launch_;
  std::optional<AccelerateFile> accelerate_file_;
  std::optional<AccelerateDeepSpeed> accelerate_;
  std::optional<TrainerValues> trainer_;
  TrainerContext context_;
  std::string config_;             // as named
  std::string file_ = "--launch";  // for places
  HjsonNode root_;
  std::vector<MigrationError> errors_;
};

}  // namespace

TrainerValues trainer_values(const std::string& argument) {
  const auto text = text_of_file(argument);
  const bool is_given =
      text || argument.find("--") != std::string::npos || argument.starts_with('{');
  if (!is_given) {
    throw IoError("--trainer " + argument +
                      ": no such file, and no arguments; give a JSON file, or arguments such as "
                      "\"--learning_rate 2e-5\"",
                  argument);
  }
  if (const std::string recipe = text ? recipe_complaint(parse_yaml(*text).root) : "";
      !recipe.empty()) {
    throw ConfigError("--trainer " + argument + ": " + recipe);
  }
  return read_training_arguments(text ? *text : argument, text ? argument : "--trainer");
}

namespace {

// The key of the source that gives a key of the result; "" where there is none.
std::string giver_of(const Migration& migration, std::string_view key) {
  for (const ConfigLine& line : migration.lines) {
    if (line.setting.key == key) return line.from;
  }
  return "";
}

}  // namespace

void absorb(Migration beside, Migration& result) {
  MigrationDraft draft(result);
  for (MigratedKey& key : beside.keys) {
    if (beside.file != result.file) key.file = beside.file;
    draft.add(std::move(key));
  }
  for (const ConfigLine& line : beside.lines) {
    const MigratedKey* from = draft.find(line.from);
    const bool is_default = from != nullptr && !from->is_written;
    const std::string earlier = giver_of(result, line.setting.key);
    if (is_default && draft.value(line.setting.key) != nullptr) {
      draft.yield(line.from, line.setting, earlier);
      continue;
    }
    draft.set(line.from, line.setting.key, line.setting.value, line.origin);
    if (!earlier.empty() && earlier != line.from) draft.yield(earlier, line.setting, line.from);
  }
  append(result.errors, beside.errors);
  append(result.missing, beside.missing);
  append(result.commands, beside.commands);
  append(result.notes, beside.notes);
}

std::string read_source(const std::string& flag, const std::string& path) {
  if (auto text = text_of_file(path)) return std::move(*text);
  throw IoError(flag + " " + path + ": cannot be read as a file; check the path", path);
}

Migration migrate_deepspeed_job(const MigrationRequest& request) {
  return DeepSpeedJob(request).run();
}

}  // namespace sluice::migrate
