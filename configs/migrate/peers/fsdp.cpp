#include "configs/migrate/peers/fsdp.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "configs/migrate/launcher/accelerate_file.hpp"
#include "configs/migrate/peers/peer_map.hpp"
#include "configs/suggest.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

using Kind = HjsonNode::Kind;

// A key of fsdp_config: the default of accelerate launch, as JSON.
struct FsdpKey {
  std::string_view name;
  std::string_view fallback;
  KeyClass kind;
  std::string_view note;
};

constexpr std::string_view kUnits = "the units of Sluice are the blocks of the model";

constexpr std::array kFsdpKeys{
    FsdpKey{"fsdp_version", "1", KeyClass::kNotNeeded, "tells which other keys have an effect"},
    FsdpKey{"fsdp_sharding_strategy", "\"FULL_SHARD\"", KeyClass::kMapped, "zero.stage"},
    FsdpKey{"fsdp_reshard_after_forward", "true", KeyClass::kMapped, "zero.stage"},
    FsdpKey{"fsdp_offload_params", "false", KeyClass::kMapped,
            "offload.optimizer, offload.parameters and offload.gradients"},
    FsdpKey{"fsdp_activation_checkpointing", "false", KeyClass::kMapped, "recompute.mode"},
    FsdpKey{"fsdp_auto_wrap_policy", "null", KeyClass::kNotNeeded, kUnits},
    FsdpKey{"fsdp_transformer_layer_cls_to_wrap", "null", KeyClass::kNotNeeded, kUnits},
    FsdpKey{"fsdp_min_num_params", "100000000", KeyClass::kNotNeeded, kUnits},
    FsdpKey{"fsdp_backward_prefetch", "null", KeyClass::kNotNeeded,
            "zero.prefetch_units gathers one unit ahead"},
    FsdpKey{"fsdp_backward_prefetch_policy", "null", KeyClass::kRemoved,
            "the former name of fsdp_backward_prefetch"},
    FsdpKey{"fsdp_forward_prefetch", "false", KeyClass::kNotNeeded,
            "zero.prefetch_units gathers one unit ahead"},
    FsdpKey{"fsdp_state_dict_type", "null", KeyClass::kNotNeeded,
            "Sluice has one form of checkpoint"},
    FsdpKey{"fsdp_use_orig_params", "true", KeyClass::kNotNeeded,
            "Sluice updates the parameters by name"},
    FsdpKey{"fsdp_cpu_ram_efficient_loading", "true", KeyClass::kNotNeeded,
            "each rank reads its own part of the weights"},
    FsdpKey{"fsdp_sync_module_states", "true", KeyClass::kNotNeeded,
            "all ranks start from the same weights"},
    FsdpKey{"fsdp_ignored_modules", "null", KeyClass::kRefused,
            "every parameter is in a group that the ranks share"},
};

const FsdpKey* find_fsdp_key(std::string_view name) {
  const auto* const found = std::find_if(kFsdpKeys.begin(), kFsdpKeys.end(),
                                         [&](const FsdpKey& key) { return key.name == name; });
  return found == kFsdpKeys.end() ? nullptr : found;
}

std::string path_of(std::string_view name) { return "fsdp_config." + std::string(name); }

// Keys without "fsdp" at the start get it, as accelerate launch does.
std::string full_name(const std::string& name) {
  return name.starts_with("fsdp") ? name : "fsdp_" + name;
}

std::string upper(std::string text) {
  for (char& c : text) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return text;
}

// accelerate's words for true and false.
std::optional<bool> to_flag(const HjsonNode& node) {
  if (node.kind == Kind::kBool) return node.boolean;
  const std::string word = upper(node.text);
  for (const std::string_view yes : {"Y", "YES", "T", "TRUE", "ON", "1"}) {
    if (word == yes) return true;
  }
  for (const std::string_view no : {"N", "NO", "F", "FALSE", "OFF", "0"}) {
    if (word == no) return false;
  }
  return std::nullopt;
}

MigratedKey default_key(std::string_view path) {
  MigratedKey key;
  key.path = path;
  key.is_written = false;
  if (path == "mixed_precision") {
    key.value = "\"no\"";
    return key;
  }
  const FsdpKey* const row = find_fsdp_key(path.substr(path.find('.') + 1));
  if (row == nullptr) return key;
  key.value = row->fallback;
  key.kind = row->kind;
  key.note = row->note;
  return key;
}

class FsdpMap {
 public:
  FsdpMap(const AccelerateFile& file, PeerMap& map, int machines)
      : file_(file), map_(map), machines_(machines) {
    if (const HjsonNode* const section = file.section("fsdp_config")) section_ = *section;
  }

  void run() {
    keys();
    if (const HjsonNode* const version = find("fsdp_version")) {
      is_second_ = version->text == "2";
      if (!is_second_ && version->text != "1") {
        map_.error(path_of("fsdp_version"),
                   "found " + in_quotes(version->text) + ", expected 1 or 2; write one of both");
        return;
      }
    }
    is_second_ ? second() : first();
    offload();
    if (flag("fsdp_activation_checkpointing", false)) {
      map_.set(path_of("fsdp_activation_checkpointing"), "recompute.mode", "full");
    }
    loading();
    precision();
    parallelism();
  }

 private:
  void keys() {
    for (const HjsonEntry& entry : section_.entries) {
      const std::string name = full_name(entry.key);
      const FsdpKey* const row = find_fsdp_key(name);
      MigratedKey key = default_key(path_of(name));
      key.place = {entry.line, entry.column};
      key.value = to_json(entry.value);
      key.is_written = true;
      if (row == nullptr) {
        key.kind = KeyClass::kIgnored;
        key.note = "accelerate does not read the key" + near(name);
      }
      key.stops = key.kind == KeyClass::kRefused && entry.value.kind != Kind::kNull;
      map_.draft().add(std::move(key));
    }
    if (section_.entries.empty()) {
      map_.draft().note("the file has no fsdp_config: the values are the defaults of accelerate");
    }
  }

  static std::string near(const std::string& name) {
    std::vector<std::string_view> names;
    for (const FsdpKey& key : kFsdpKeys) names.push_back(key.name);
    const auto found = nearest(name, names);
    return found ? "; did you mean " + std::string(*found) + "?" : "";
  }

  [[nodiscard]] const HjsonNode* find(std::string_view name) const {
    for (const HjsonEntry& entry : section_.entries) {
      if (full_name(entry.key) == name) {
        return entry.value.kind == Kind::kNull ? nullptr : &entry.value;
      }
    }
    return nullptr;
  }

  bool flag(std::string_view name, bool fallback) {
    const HjsonNode* const node = find(name);
    if (node == nullptr) return fallback;
    const std::optional<bool> value = to_flag(*node);
    if (!value) {
      map_.error(path_of(name),
                 "found " + in_quotes(node->text) + ", expected true or false; write one of both");
    }
    return value.value_or(fallback);
  }

  void ignore(std::string_view name, const std::string& why) {
    if (find(name) != nullptr) map_.reclass(path_of(name), KeyClass::kIgnored, why);
  }

  void first() {
    ignore("fsdp_reshard_after_forward",
           "FSDP1 has fsdp_sharding_strategy, which accelerate launch always sets");
    constexpr std::array<std::string_view, 5> kNames{"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD",
                                                     "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"};
    const HjsonNode* const node = find("fsdp_sharding_strategy");
    const std::string name = node == nullptr ? "FULL_SHARD" : upper(node->text);
    std::size_t at = 0;
    while (at < kNames.size() && kNames[at] != name && std::to_string(at + 1) != name) ++at;
    const std::string path = path_of("fsdp_sharding_strategy");
    if (at == kNames.size()) {
      map_.error(path, "found " + in_quotes(node->text) +
                           ", expected FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or "
                           "HYBRID_SHARD_ZERO2; write one of these values");
      return;
    }
    constexpr std::array<int, 5> kStages{3, 2, 0, 3, 2};
    stage_ = kStages[at];
    map_.set(path, "zero.stage", std::to_string(stage_));
    if (at >= 3 && machines_ > 1) {
      map_.stop(path, "each host holds all states there; data-parallel ranks shard as one group");
    } else if (stage_ == 2) {
      map_.changed(path, kGathered);
    } else if (at >= 3) {
      map_.changed(path, "with one host, all ranks shard as one group there too");
    }
  }

  void second() {
    ignore("fsdp_sharding_strategy", "FSDP2 has fsdp_reshard_after_forward");
    for (const std::string_view name : {"fsdp_backward_prefetch", "fsdp_forward_prefetch",
                                        "fsdp_use_orig_params", "fsdp_sync_module_states"}) {
      ignore(name, "accelerate does not read the key with fsdp_version 2");
    }
    stage_ = flag("fsdp_reshard_after_forward", true) ? 3 : 2;
    map_.set(path_of("fsdp_reshard_after_forward"), "zero.stage", std::to_string(stage_));
    if (stage_ == 2) map_.changed(path_of("fsdp_reshard_after_forward"), kGathered);
  }

  void offload() {
    if (!flag("fsdp_offload_params", false)) return;
    const std::string path = path_of("fsdp_offload_params");
    map_.set(path, "offload.optimizer", "host");
    if (stage_ >= 2) map_.set(path, "offload.gradients", "host");
    if (stage_ == 3) return map_.set(path, "offload.parameters", "host");
    map_.changed(path, "parameters are on the host there, on the device here: zero.stage is " +
                           std::to_string(stage_));
  }

  void loading() {
    const bool efficient = flag("fsdp_cpu_ram_efficient_loading", true);
    if (efficient && !flag("fsdp_sync_module_states", true) && !is_second_) {
      map_.error(path_of("fsdp_sync_module_states"),
                 "fsdp_cpu_ram_efficient_loading needs true, accelerate stops; write true");
    }
    for (const std::string_view name : {"fsdp_forward_prefetch", "fsdp_use_orig_params"}) {
      (void)flag(name, false);
    }
    const HjsonNode* const policy = find("fsdp_auto_wrap_policy");
    if (policy == nullptr) return;
    const std::string name = upper(policy->text);
    if (name != "TRANSFORMER_BASED_WRAP" && name != "SIZE_BASED_WRAP" && name != "NO_WRAP") {
      map_.error(path_of("fsdp_auto_wrap_policy"),
                 "found " + in_quotes(policy->text) +
                     ", expected TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or NO_WRAP; write one of "
                     "these values");
    }
  }

  void precision() {
    for (const HjsonEntry& entry : file_.root.entries) {
      if (entry.key != "mixed_precision" && entry.key != "fp16") continue;
      MigratedKey key;
      key.path = entry.key;
      key.place = {entry.line, entry.column};
      key.value = to_json(entry.value);
      key.note = "train.dtype";
      map_.draft().add(std::move(key));
    }
    const std::string& dtype = file_.mixed_precision;
    const bool old =
        map_.draft().find("mixed_precision") == nullptr && map_.draft().find("fp16") != nullptr;
    const std::string_view from = old ? "fp16" : "mixed_precision";
    if (dtype == "fp8") {
      return map_.stop(from, "set bf16 here, and train.matmul: fp8 in Sluice's file");
    }
    map_.set(from, "train.dtype", dtype == "no" ? "fp32" : dtype);
    if (dtype != "no") {
      const char* const also = "; zero.reduce_dtype: bf16 sends them in bf16";
      map_.changed(from, "gradients are reduced in " + dtype + " there, in fp32 here" +
                             (dtype == "bf16" ? also : ""));
    }
    if (dtype != "fp16") return;
    const std::string origin = "PyTorch's gradient scaler";
    map_.set_own("loss_scale.initial", "65536", origin);
    map_.set_own("loss_scale.window", "2000", origin);
    map_.set_own("loss_scale.hysteresis", "1", origin);
  }

  void parallelism() {
    for (const HjsonEntry& entry : file_.root.entries) {
      if (entry.key != "parallelism_config") continue;
      for (const HjsonEntry& each : entry.value.entries) parallel_key(each);
    }
  }

  void parallel_key(const HjsonEntry& entry) {
    constexpr std::string_view kPrefix = "parallelism_config_";
    std::string name = entry.key;
    if (name.starts_with(kPrefix)) name.erase(0, kPrefix.size());
    MigratedKey key;
    key.path = "parallelism_config." + entry.key;
    key.place = {entry.line, entry.column};
    key.value = to_json(entry.value);
    const std::string path = key.path;
    const bool more = entry.value.integer && *entry.value.integer > 1;
    const bool is_size = name.ends_with("_size");
    key.kind = KeyClass::kRefused;
    key.note = "the mesh is tensor x pipeline x data, and data ranks shard as one group";
    key.stops = is_size && more && name != "tp_size" && name != "dp_shard_size";
    if (!is_size) key.kind = KeyClass::kIgnored, key.note = "no effect without its size";
    if (name == "tp_size") key.kind = KeyClass::kMapped, key.note = "parallel.tensor";
    if (name == "dp_shard_size") key.kind = KeyClass::kMapped, key.note = "parallel.data";
    map_.draft().add(std::move(key));
    if (!is_second_ && more) {
      map_.error(path, "needs fsdp_version 2, accelerate stops; leave parallelism_config out");
    } else if (name == "tp_size") {
      map_.set(path, "parallel.tensor", entry.value.text);
    } else if (name == "dp_shard_size" && more) {
      map_.set(path, "parallel.data", entry.value.text);
    }
  }

  static constexpr const char* kGathered =
      "weights are whole from forward to backward and sharded between steps there; always whole "
      "here";

  const AccelerateFile& file_;
  PeerMap& map_;
  int machines_;
  HjsonNode section_;
  bool is_second_ = false;
  int stage_ = 3;
};

// "batch, schedule": the parts of a run that neither the Trainer nor a setting gives.
std::string open_values(const FsdpOptions& options) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kParts{
      {{"batch", "train.micro_batch="}, {"optimizer", "optimizer."}, {"schedule", "schedule."}}};
  std::string open;
  for (const auto& [part, begin] : kParts) {
    const bool is_given = std::any_of(
        options.settings.begin(), options.settings.end(),
        [&begin = begin](const std::string& setting) { return setting.starts_with(begin); });
    if (!is_given) open += (open.empty() ? "" : ", ") + std::string(part);
  }
  return options.has_trainer ? "" : open;
}

}  // namespace

Migration migrate_fsdp(const std::string& text, const FsdpOptions& options) {
  Migration result;
  result.file = options.file;
  result.source = "accelerate, FSDP";
  const AccelerateFile file = read_accelerate_file(text, options.file);
  result.errors = file.errors;
  if (!result.errors.empty()) return result;
  PeerMap map(result, options.settings, default_key);
  if (file.distributed_type != "FSDP") {
    map.error("",
              "distributed_type is " + file.distributed_type + ", not FSDP; give a file of FSDP");
    return result;
  }
  const AccelerateJob job = map_accelerate_job(file, map.draft());
  map.set_world(options.world, job.world);
  FsdpMap(file, map, job.machines).run();
  if (job.machines > 1 && !setting_of(options.settings, "launch.hostfile")) {
    map.draft().note(start_on_hosts(job));
  }
  if (const std::string open = open_values(options); !open.empty()) {
    map.draft().note("the script has values that the file lacks (" + open +
                     "): give them with --trainer or --set");
  }
  for (const MigratedKey& key : result.keys) result.effective.emplace(key.path, key.value);
  for (const FsdpKey& key : kFsdpKeys) {
    result.effective.emplace(path_of(key.name), std::string(key.fallback));
  }
  return result;
}

}  // namespace sluice::migrate
