// `sluice checkpoint import`: Hugging Face folders, DeepSpeed's checkpoints and Megatron's as
// checkpoints of ours.
#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "configs/reader.hpp"
#include "configs/value.hpp"
#include "runtime/checkpoint/format/step_name.hpp"
#include "runtime/checkpoint/hf/hf_config.hpp"
#include "runtime/checkpoint/hf/hf_import.hpp"
#include "runtime/checkpoint/import/import_states.hpp"
#include "runtime/checkpoint/io/checkpoint_catalog.hpp"
#include "runtime/cli/command_output.hpp"
#include "runtime/cli/commands.hpp"
#include "runtime/cli/setup/hf_setup.hpp"
#include "runtime/cli/setup/weights_setup.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"
#include "runtime/run/saved_tokenizer.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWork = "`sluice checkpoint import`";

std::string absolute(const std::string& path) {
  return fs::absolute(path).lexically_normal().string();
}

// A configuration of the folder's model, and nothing to train on yet.
LoadedConfig config_of_folder(const std::string& dir, const CheckpointCommand& command) {
  LoadedConfig config =
      load_config_text(join_path(dir, "config.json"),
                       "model: {from: " + yaml_quoted(absolute(dir)) + "}", command.overrides);
  settle_model_from(config);
  return config;
}

// Refuses checkpoints of ours: there is nothing to import.
void refuse_own_checkpoint(const std::string& dir) {
  std::error_code unreadable;
  if (!fs::is_directory(dir, unreadable) || exists(join_path(dir, "config.json"))) return;
  FileSystem& files = local_file_system();
  const std::vector<CheckpointSummary> found = ls(files, checkpoints_in(files, dir));
  if (std::none_of(found.begin(), found.end(), [](const CheckpointSummary& c) {
        return c.step >= 0 && exists(join_path(c.path, kManifestName));
      })) {
    return;
  }
  throw IoError("cannot import " + dir +
                    ": it holds checkpoints of Sluice already, which need no import; `sluice "
                    "train RUN.yaml --resume " +
                    dir + "` goes on from the newest, `sluice generate` and `sluice eval` take " +
                    "--checkpoint " + dir +
                    ", `sluice checkpoint export` makes a Hugging Face folder, and `sluice "
                    "checkpoint convert` another checkpoint",
                dir);
}

void check_is_hugging_face(const CheckpointCommand& command) {
  const std::string& dir = command.path;
  if (exists(join_path(dir, "config.json"))) return;
  std::string what = dir + " has no config.json: it is no Hugging Face folder";
  if (command.format == "auto") {
    what = dir +
           " is nothing that can be imported: neither a Hugging Face folder (config.json), nor a "
           "checkpoint of DeepSpeed (*_optim_states.pt, or a universal one's zero/), nor one of "
           "Megatron (mp_rank_00/, or .metadata with common.pt)";
  }
  for (const char* name : {"latest_checkpointed_iteration.txt", "latest_universal", "latest"}) {
    const std::string path = join_path(dir, name);
    if (exists(path)) what = path + " names no checkpoint that is there; give the folder of one";
  }
  throw IoError(exists(dir) ? what : "cannot import " + dir + ": there is no such folder", dir);
}

// The tokenizer that the configuration names; none if its kind is not supported.
TokenizerRecord record_of(const LoadedConfig& config, std::vector<std::int32_t> end_tokens) {
  const std::string& spec = config.run.data.tokenizer;
  if (!config.given("data.tokenizer")) return {};
  try {
    return tokenizer_record(*make_tokenizer(spec), spec, std::move(end_tokens));
  } catch (const Error& error) {
    log_warning("the checkpoint goes without its tokenizer: " + std::string(error.what()));
    return {};
  }
}

int import_hugging_face(const CheckpointCommand& command) {
  FileSystem& files = local_file_system();
  LoadedConfig config = config_of_folder(command.path, command);
  RunConfig& run = config.run;
  const auto weights = open_model_from(run);
  weights->check_tied();
  log_model_from(run, *weights);
  const std::string out = absolute(command.out);
  const WriterLock lock = lock_output(out, kWork);
  const std::vector<std::string> carried = carry_companions(files, command.path, out);
  // The folder's tokenizer is used from its copy; a tokenizer of --set stays in place.
  const std::string name = fs::path(run.data.tokenizer).filename().string();
  if (run.data.tokenizer == (fs::path(run.model.from) / name).string() &&
      std::find(carried.begin(), carried.end(), name) != carried.end()) {
    run.data.tokenizer = join_path(join_path(out, kCompanions), name);
  }
  const ModelSpec spec = make_model_spec(run.model);
  run.model.from.clear();
  RunState state;
  state.seed = run.train.seed;
  state.config = config.resolved_yaml();
  state.more["imported_from"] = absolute(command.path);
  state.tokenizer = record_of(config, read_hf_end_tokens(command.path));
  const std::string path = import_hf(files, out, spec, *weights, state);
  print(path + ": " + format_count(static_cast<double>(spec.param_count())) +
        " parameters at step 0, without moments\n");
  return 0;
}

// The configuration of --config holds; differences from the source are warnings.
void warn_of_differences(const ModelOptions& model, const ImportSource& source) {
  try {
    const std::optional<ModelOptions> stated = source.model();
    if (!stated) return;
    ModelOptions ours = model;
    const auto given = [](std::string_view) { return true; };
    for (const HfDisagreement& found : merge_hf_model(ours, *stated, given)) {
      log_warning(found.key + ": " + found.run + " of --config is not the " + found.file +
                  " that " + source.path() + " says");
    }
  } catch (const ConfigError& error) {
    log_warning(std::string("not computed as it was trained, whatever --config says:\n") +
                error.what());
  }
}

// The model: from a run's file, the checkpoint, a config.json beside it, or --set.
LoadedConfig config_of_source(const CheckpointCommand& command, const ImportSource& source) {
  if (!command.config.empty()) {
    LoadedConfig config = load_config(command.config, command.overrides);
    settle_model_from(config);
    warn_of_differences(config.run.model, source);
    return config;
  }
  const std::optional<ModelOptions> stated = source.model();
  // transformers' Trainer writes config.json beside the folder that `latest` names.
  for (const std::string& dir : {source.path(), command.path}) {
    if (!stated && exists(join_path(dir, "config.json"))) return config_of_folder(dir, command);
  }
  LoadedConfig config = load_config_text(source.path(), "{}", command.overrides);
  if (!stated) {
    if (config.given("model.type")) return config;
    throw ConfigError(
        source.path() +
        " does not say what model it is of; give --config RUN.yaml, put its "
        "config.json there, or give --set model.type=..., model.layers=... and so on");
  }
  const auto given = [&config](std::string_view key) { return config.given(key); };
  std::string lines;
  for (const HfDisagreement& found : merge_hf_model(config.run.model, *stated, given)) {
    lines += (lines.empty() ? "" : "\n") + found.key + ": " + found.run + " is not the " +
             found.file + " that " + source.path() + " says; leave it out";
  }
  if (!lines.empty()) throw ConfigError(lines);
  return config;
}

// Sizes that only the tables show: numbers of tokens and positions.
void settle_tables(LoadedConfig& config, const ImportTables& tables, const std::string& path) {
  ModelOptions& model = config.run.model;
  if (model.type == ModelType::kGpt2 && tables.positions > 0) {
    if (!config.given("model.seq")) model.seq = tables.positions;
    if (model.seq > tables.positions) {
      throw ConfigError("model.seq: " + std::to_string(model.seq) +
                        " positions are more than the " + std::to_string(tables.positions) +
                        " of " + path);
    }
  }
  if (model.vocab != 0) return;
  if (!tables.unpadded) {
    throw ConfigError(path + " does not say how many of its vocabulary's " +
                      std::to_string(tables.vocab) +
                      " rows are tokens and how many padding; give --set model.vocab=N");
  }
  model.vocab = tables.vocab;
}

int import_states(const CheckpointCommand& command, ImportSource& source) {
  FileSystem& files = local_file_system();
  LoadedConfig config = config_of_source(command, source);
  RunConfig& run = config.run;
  run.model.from.clear();
  const ImportTables tables = import_tables(source, run.model.type, run.model.hidden);
  settle_tables(config, tables, source.path());
  const ModelSpec spec = make_model_spec(run.model);
  ImportedStates states(source, spec, tables);
  for (const std::string& note : states.notes()) log_warning(source.path() + ": " + note);
  const ImportProgress at = source.progress();
  RunState state;
  state.step = at.step;
  state.updates = at.updates;
  state.skipped_steps = at.step - at.updates;
  state.samples = at.samples;
  state.tokens = at.samples * run.model.seq;
  if (at.loss_scale > 0) {
    state.loss_scale = at.loss_scale;
    state.loss_scale_good_steps = at.loss_scale_good_steps;
    state.loss_scale_lives = std::max<std::int64_t>(1, at.loss_scale_lives);
  }
  state.seed = run.train.seed;
  state.config = config.resolved_yaml();
  state.more["imported_from"] = absolute(source.path());
  state.tokenizer = record_of(config, {});
  std::string rate;
  if (at.learning_rate > 0) {
    rate = format_number(at.learning_rate);
    state.more["imported_next_learning_rate"] = rate;
    rate = ", its next learning rate " + rate;
  }
  const std::string out = absolute(command.out);
  const WriterLock lock = lock_output(out, kWork);
  const std::string path = states.commit(files, out, state);
  print(path + ": " + format_count(static_cast<double>(spec.param_count())) + " parameters of " +
        source.program() + "'s at step " + std::to_string(at.step) +
        (states.moments() ? ", with both moments" : ", without moments") + rate + "\n");
  return 0;
}

}  // namespace

int run_checkpoint_import(const CheckpointCommand& command) {
  check_holds_no_checkpoint(command.out);
  const bool deepspeed = command.format == "deepspeed";
  const bool megatron = command.format == "megatron";
  if (command.format != "hf" && exists(command.path)) {
    ImportWhat what;
    if (deepspeed) what.format = ImportFormat::kDeepSpeed;
    if (megatron) what.format = ImportFormat::kMegatron;
    what.weights_only = command.weights_only;
    if (const auto source = open_import(command.path, what)) {
      return import_states(command, *source);
    }
  }
  refuse_own_checkpoint(command.path);
  if (deepspeed || megatron) {
    throw IoError(command.path + " is no " +
                      (deepspeed ? "checkpoint of DeepSpeed: it has neither *_optim_states.pt nor "
                                   "a universal checkpoint's zero/"
                                 : "checkpoint of Megatron: it has no mp_rank_00/, and no "
                                   ".metadata with common.pt; those of other formats are to be "
                                   "saved again as --ckpt-format torch or torch_dist"),
                  command.path);
  }
  check_is_hugging_face(command);
  return import_hugging_face(command);
}

}  // namespace sluice
