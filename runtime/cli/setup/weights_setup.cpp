#include "runtime/cli/setup/weights_setup.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "configs/validate.hpp"
#include "runtime/checkpoint/format/step_name.hpp"
#include "runtime/checkpoint/hf/hf_config.hpp"
#include "runtime/checkpoint/hf/hf_export.hpp"
#include "runtime/checkpoint/hf/hf_json.hpp"
#include "runtime/checkpoint/io/checkpoint_catalog.hpp"
#include "runtime/checkpoint/io/checkpoint_load.hpp"
#include "runtime/checkpoint/io/file_system.hpp"
#include "runtime/cli/checkpoint_model.hpp"
#include "runtime/cli/checkpoint_tokenizer.hpp"
#include "runtime/cli/command_output.hpp"
#include "runtime/cli/setup/hf_setup.hpp"
#include "runtime/cli/setup/rank_setup.hpp"
#include "runtime/data/data_sets.hpp"
#include "runtime/launch/rank_env.hpp"
#include "runtime/model/model_spec.hpp"

namespace sluice {
namespace {
namespace fs = std::filesystem;

enum class Kind { kCheckpoint, kHuggingFace };

bool has(const std::string& dir, const std::string& name) {
  std::error_code ignored;
  return fs::exists(fs::path(dir) / name, ignored);
}

// `latest` may be missing beside complete checkpoints: a crash came before it, or they were copied.
bool holds_checkpoints(const std::string& dir) {
  FileSystem& files = local_file_system();
  const std::vector<CatalogEntry> entries = catalog(files, checkpoints_in(files, dir));
  return std::any_of(entries.begin(), entries.end(),
                     [](const CatalogEntry& entry) { return entry.has_manifest; });
}

Kind kind_of(const std::string& dir) {
  if (has(dir, kManifestName) || has(dir, kLatestName)) return Kind::kCheckpoint;
  if (has(dir, "config.json")) return Kind::kHuggingFace;
  std::error_code ignored;
  if (fs::is_directory(dir, ignored) && holds_checkpoints(dir)) return Kind::kCheckpoint;
  if (const std::string why = why_no_model(dir); !why.empty()) {
    throw IoError("cannot read " + dir + ": " + why, dir);
  }
  if (!fs::exists(dir, ignored)) {
    throw IoError("cannot read " + dir +
                      ": there is no such folder; --checkpoint takes a run's "
                      "folder, a folder of checkpoints, one of them, or a Hugging Face folder",
                  dir);
  }
  throw IoError(dir + " holds no weights: neither " + kManifestName + " or " + kLatestName +
                    " of a complete checkpoint nor config.json of a Hugging Face folder",
                dir);
}

// Sets the keys for reading parameters alone.
void freeze(RunConfig& run) {
  const bool away = run.offload.parameters != Tier::kDevice;
  if (away) run.zero.stage = 3;
  run.offload.optimizer = run.offload.parameters;  // rules between keys: there are none here
  run.offload.gradients = Tier::kDevice;
  run.offload.gradients_dtype = DType::kFloat32;
  run.offload.activations = Tier::kDevice;
  run.offload.device_fraction = 0;
  run.recompute.mode = RecomputeMode::kNone;
  run.zero.reduce_every = ReduceEvery::kMicroBatch;
  run.train.global_batch = 0;
  run.train.accumulation_order = AccumulationOrder::kMicro;
  run.train.freeze.clear();
  run.model.dropout = 0;
  run.model.from.clear();
}

void check_model(const ModelSpec& spec, const Checkpoint& checkpoint) {
  std::map<std::string, std::vector<std::int64_t>> stored;
  for (const StateRange& range : checkpoint.parameters()) stored[range.param] = range.shape;
  const auto fail = [&](const std::string& name, const std::string& what) {
    throw ConfigError("the configuration's model is not that of " + checkpoint.path() + ": " +
                      name + what);
  };
  for (const ParamGroup& group : spec.groups) {
    for (const ParamSpec& param : group.params) {
      const auto found = stored.find(param.tensor.name);
      if (found == stored.end()) fail(param.tensor.name, " is not in it");
      if (found->second != param.tensor.shape) {
        fail(param.tensor.name, " is " + shape_text(found->second) + " there and " +
                                    shape_text(param.tensor.shape) + " here");
      }
      stored.erase(found);
    }
  }
  if (!stored.empty()) fail(stored.begin()->first, " of the checkpoint is not in it");
}

std::map<std::string, std::vector<std::int64_t>> shapes_of(const ModelSpec& spec) {
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const ParamGroup& group : spec.groups) {
    for (const ParamSpec& param : group.params) {
      shapes[param.tensor.name] = param.tensor.shape;
    }
  }
  return shapes;
}

bool is_asked_for(const LoadedConfig& config, std::string_view key) {
  const auto origin = config.origins.find(key);
  return origin != config.origins.end() && origin->second.is_set;
}

// A run's paths are relative to its working directory, which may differ from this process's.
void find_tokenizer(LoadedConfig& config, const std::string& step_dir) {
  std::string& tokenizer = config.run.data.tokenizer;
  std::error_code ignored;
  if (tokenizer == "bytes" || is_asked_for(config, "data.tokenizer")) return;
  if (fs::exists(tokenizer, ignored)) return;
  const fs::path beside = fs::path(companions_of(step_dir)) / fs::path(tokenizer).filename();
  if (!fs::exists(beside, ignored)) {
    throw IoError("the checkpoint's data.tokenizer is " + tokenizer +
                      ", which is not there from this working directory, and there is no " +
                      beside.string() + "; say where it is with --set data.tokenizer=PATH",
                  tokenizer);
  }
  tokenizer = beside.string();
}

// Of the first folder that says.
std::set<std::int32_t> end_tokens_of(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    if (folder.empty()) continue;
    const std::vector<std::int32_t> tokens = read_hf_end_tokens(folder);
    if (!tokens.empty()) return {tokens.begin(), tokens.end()};
  }
  return {};
}

UsedWeights use_checkpoint(const WeightsRequest& request, const std::string& dir) {
  auto checkpoint = std::make_shared<Checkpoint>(open_checkpoint(local_file_system(), dir));
  const RunState& state = checkpoint->manifest().run;
  UsedWeights used;
  used.path = checkpoint->path();
  used.step = state.step;
  used.config = request.config.empty() ? load_config_text(used.path + "/" + kManifestName,
                                                          state.config, request.overrides)
                                       : load_config(request.config, request.overrides);
  const Written written = [&](std::string_view key) {
    return request.config.empty() ? is_asked_for(used.config, key) : used.config.given(key);
  };
  used.own_tokenizer = state.tokenizer.known();
  if (used.own_tokenizer) {
    const std::string note = take_tokenizer(used.config, written, *checkpoint);
    if (!note.empty()) used.notes.push_back(note);
  } else {
    used.notes.push_back(used.path + " was saved without its tokenizer: data.tokenizer is taken (" +
                         used.config.run.data.tokenizer + ")");
  }
  if (request.config.empty()) {
    if (!used.own_tokenizer) find_tokenizer(used.config, used.path);
    // An imported model has no training data, and a configuration without data is refused; this
    // command reads none.
    DataOptions& data = used.config.run.data;
    if (!data.names_training()) data.train = {used.path};
  }
  if (!take_model(used.config, written, *checkpoint)) {
    used.notes.push_back(
        used.path + " does not say what model it was trained as: the configuration's is taken");
  }
  ModelOptions& model = used.config.run.model;
  const std::vector<std::int32_t>& ends = state.tokenizer.end_tokens;
  used.end_tokens = {ends.begin(), ends.end()};
  if (ends.empty()) used.end_tokens = end_tokens_of({companions_of(used.path), model.from});
  if (model.vocab == 0) model.vocab = stored_vocab(*checkpoint);
  const ModelSpec spec = make_model_spec(model);
  check_model(spec, *checkpoint);
  used.source = [checkpoint, shapes = shapes_of(spec)](const std::string& name, std::int64_t begin,
                                                       std::span<float> values) {
    StateRange range = whole_range(name, StateKind::kMaster, TensorDType::kF32, shapes.at(name));
    range.begin = begin;
    range.end = begin + static_cast<std::int64_t>(values.size());
    checkpoint->read_range(range, std::as_writable_bytes(values));
    return static_cast<std::int64_t>(values.size());
  };
  return used;
}

bool is_same_folder(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return a == b || fs::equivalent(a, b, ignored);
}

// Printed once: by the process that starts ranks, or by rank 0 if another program started them.
bool checks_tied() {
  if (has_launcher()) return false;
  const auto rank = rank_environment();
  return !rank || rank->rank == 0;
}

UsedWeights use_hugging_face(const WeightsRequest& request, const std::string& dir) {
  UsedWeights used;
  used.path = dir;
  // data.text is not read, but a configuration without it is refused.
  used.config =
      request.config.empty()
          ? load_config_text(dir + "/config.json", "data: {text: [" + yaml_quoted(dir) + "]}",
                             request.overrides)
          : load_config(request.config, request.overrides);
  RunConfig& run = used.config.run;
  const std::string replaced = is_same_folder(run.model.from, dir) ? "" : run.model.from;
  run.model.from = dir;
  if (!request.checkpoint.empty()) {
    Origin origin;
    origin.text = "--checkpoint " + dir;
    used.config.origins.insert_or_assign("model.from", origin);
  }
  settle_model_from(used.config);
  if (request.rotary_positions > 0 && run.model.type != ModelType::kGpt2 &&
      !used.config.given("model.seq")) {
    const std::int64_t trained = read_hf_config(join_path(dir, "config.json")).seq;
    run.model.seq = std::min(request.rotary_positions, trained);
  }
  const std::shared_ptr<const HfWeights> weights = open_model_from(run);
  if (checks_tied()) weights->check_tied();
  used.end_tokens = end_tokens_of({dir});
  if (!used.config.given("train.dtype")) run.train.dtype = weights->dtype();
  used.notes = weights->notes();
  if (!replaced.empty()) {
    used.notes.push_back("the weights are those of --checkpoint " + dir +
                         ", not of the configuration's model.from " + replaced);
  }
  used.source = initial_weights(weights);
  return used;
}

}  // namespace

std::string yaml_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    out += c;
    if (c == '\'') out += c;
  }
  return out + "'";
}

void check_holds_no_checkpoint(const std::string& out) {
  std::string taken = exists(join_path(out, kManifestName)) ? "is a checkpoint" : "";
  for (const CatalogEntry& entry : catalog(local_file_system(), out)) {
    if (!entry.has_manifest && !entry.unreadable) continue;
    taken = "already holds checkpoints, as " + entry.name;
    break;
  }
  if (taken.empty()) return;
  throw ConfigError("-o " + out + " " + taken +
                    "; give a folder that is new, so that no other model's are in it");
}

WriterLock lock_output(const std::string& out, const std::string& command) {
  WriterLock lock({{"-o", out}}, command, kOutputPatience);
  check_holds_no_checkpoint(out);
  if (has(out, kRunCheckpoints) || is_of_a_run(join_path(out, "config.yaml"))) {
    throw ConfigError("-o " + out +
                      " is the folder of a run, and what is written there would hide the run's own "
                      "checkpoints from --resume, generate and export; give a folder that is new");
  }
  return lock;
}

std::vector<std::string> carry_companions(FileSystem& files, const std::string& from,
                                          const std::string& checkpoint_dir) {
  if (!exists(from)) return {};
  const std::string to = join_path(checkpoint_dir, kCompanions);
  make_dirs_durably(files, to);
  std::vector<std::string> carried = copy_hf_companions(files, from, to);
  const std::string config = join_path(from, "config.json");
  if (exists(config)) {
    replace_durably(files, join_path(to, "config.json"),
                    read_text(files, config, HfJsonLimits().bytes));
  }
  return carried;
}

std::string companions_of(const std::string& step_dir) {
  fs::path step = fs::absolute(step_dir).lexically_normal();
  if (!step.has_filename()) step = step.parent_path();  // "step-00000100/"
  return (step.parent_path() / kCompanions).string();
}

std::int64_t stored_vocab(const Checkpoint& checkpoint) {
  for (const StateRange& range : checkpoint.parameters()) {
    const bool table = range.param == "wte.weight" || range.param == "model.embed_tokens.weight";
    if (table) return range.shape.front();
  }
  return 0;
}

void check_tokenizer(const UsedWeights& weights) {
  const LoadedConfig& config = weights.config;
  const DataOptions& data = config.run.data;
  if (weights.own_tokenizer) return;
  if (!reads_text(data) && data.tokenizer == "bytes" && !is_asked_for(config, "data.tokenizer")) {
    throw ConfigError(
        "the model was trained on tokens, and nothing says of which tokenizer; give "
        "--set data.tokenizer=FOLDER");
  }
}

namespace {

// Weights belong to no mesh: the mesh of their training is used if the number of ranks fits.
void fit_mesh(ParallelOptions& mesh, int world) {
  mesh.data = 0;
  mesh.sequence = false;  // sequences are gone on with token by token
  if (world % (std::int64_t{mesh.tensor} * mesh.pipeline) != 0) mesh = {};
}

}  // namespace

UsedWeights use_weights(const WeightsRequest& request) {
  std::string dir = request.checkpoint;
  if (dir.empty() && !request.config.empty()) {
    dir = load_config(request.config, request.overrides).run.model.from;
  }
  if (dir.empty()) {
    throw ConfigError(
        "there are no weights to use; give --checkpoint DIR: a folder of checkpoints, one of them, "
        "or a Hugging Face folder");
  }
  UsedWeights used = kind_of(dir) == Kind::kCheckpoint ? use_checkpoint(request, dir)
                                                       : use_hugging_face(request, dir);
  freeze(used.config.run);
  fit_mesh(used.config.run.parallel, request.world);
  validate(used.config, request.world, std::nullopt, Purpose::kUse);
  return used;
}

}  // namespace sluice
