#include "runtime/cli/weights_setup.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "configs/validate.hpp"
#include "kernels/base/error.hpp"
#include "runtime/checkpoint/checkpoint_load.hpp"
#include "runtime/checkpoint/file_system.hpp"
#include "runtime/checkpoint/step_name.hpp"
#include "runtime/cli/hf_setup.hpp"
#include "runtime/model/model_spec.hpp"

namespace sluice {
namespace {
namespace fs = std::filesystem;

enum class Kind { kCheckpoint, kHuggingFace };

bool has(const std::string& dir, const std::string& name) {
  std::error_code ignored;
  return fs::exists(fs::path(dir) / name, ignored);
}

Kind kind_of(const std::string& dir) {
  if (has(dir, kManifestName) || has(dir, kLatestName)) return Kind::kCheckpoint;
  if (has(dir, "config.json")) return Kind::kHuggingFace;
  std::error_code ignored;
  if (!fs::exists(dir, ignored)) {
    throw IoError("cannot read " + dir +
                      ": there is no such folder; --checkpoint takes a folder of "
                      "checkpoints, one of them, or a Hugging Face folder",
                  dir);
  }
  throw IoError(dir + " holds no weights: neither " + kManifestName + " or " + kLatestName +
                    " of a complete checkpoint nor config.json of a Hugging Face folder",
                dir);
}

// In YAML, whatever is in it.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

// The keys that reading alone needs; what is written here is not what the run was asked to train.
void freeze(RunConfig& run) {
  const bool away = run.offload.parameters != Tier::kDevice;
  if (away) run.zero.stage = 3;
  run.offload.optimizer = run.offload.parameters;  // rules between keys: there are none here
  run.offload.gradients = Tier::kDevice;
  run.offload.activations = Tier::kDevice;
  run.offload.device_fraction = 0;
  run.recompute.mode = RecomputeMode::kNone;
  run.zero.reduce_every = ReduceEvery::kMicroBatch;
  run.train.global_batch = 0;
  run.train.accumulation_order = AccumulationOrder::kMicro;
  run.model.dropout = 0;
  run.model.from.clear();
}

void check_model(const ModelSpec& spec, const Checkpoint& checkpoint) {
  std::map<std::string, std::vector<std::int64_t>> stored;
  for (const StateRange& range : checkpoint.parameters()) stored[range.param] = range.shape;
  for (const ParamGroup& group : spec.groups) {
    for (const ParamSpec& param : group.params) {
      const auto found = stored.find(param.tensor.name);
      if (found != stored.end() && found->second == param.tensor.shape) continue;
      throw ConfigError("the configuration's model is not that of " + checkpoint.path() + ": " +
                        param.tensor.name +
                        (found == stored.end() ? " is not in it" : " has another shape there"));
    }
  }
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

std::int64_t stored_vocab(const Checkpoint& checkpoint) {
  for (const StateRange& range : checkpoint.parameters()) {
    const bool table = range.param == "wte.weight" || range.param == "model.embed_tokens.weight";
    if (table) return range.shape.front();
  }
  return 0;
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
  ModelOptions& model = used.config.run.model;
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

UsedWeights use_hugging_face(const WeightsRequest& request, const std::string& dir) {
  UsedWeights used;
  used.path = dir;
  // Nothing is read of data.text here, but a configuration without it is refused.
  used.config = request.config.empty()
                    ? load_config_text(dir + "/config.json", "data: {text: [" + quoted(dir) + "]}",
                                       request.overrides)
                    : load_config(request.config, request.overrides);
  RunConfig& run = used.config.run;
  run.model.from = dir;
  settle_model_from(used.config);
  const std::shared_ptr<const HfWeights> weights = open_model_from(run);
  if (!used.config.given("train.dtype")) run.train.dtype = weights->dtype();
  used.notes = weights->notes();
  used.source = initial_weights(weights);
  return used;
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
  validate(used.config, request.world);
  return used;
}

}  // namespace sluice
