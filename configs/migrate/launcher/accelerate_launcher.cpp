// The arguments of `accelerate launch`. They take the place of keys in accelerate's file, so this
// mapping ends with the file that results.
#include <array>
#include <map>

#include "base/format.hpp"
#include "configs/migrate/launcher/launch_parts.hpp"
#include "configs/migrate/launcher/yaml_values.hpp"

namespace sluice::migrate {
namespace {

using enum KeyClass;
using enum ArgumentType;

constexpr std::string_view kKey = "takes the place of the key in accelerate's file";
constexpr std::string_view kCompiler = "a compiler of PyTorch modules, for the same values";
constexpr std::string_view kTpu = "Sluice has no TPUs";

constexpr std::array<ArgumentRule, 51> kAccelerateRules{{
    {"--config_file", "", kText, kMapped, "accelerate's file; the line's arguments come first", ""},
    {"--quiet", "-q", kFlag, kNotNeeded, "Sluice prints no traces of Python", ""},
    {"--cpu", "", kFlag, kMapped, kKey, ""},
    {"--multi_gpu", "", kFlag, kMapped, kKey, ""},
    {"--tpu", "", kFlag, kRefused, kTpu, ""},
    {"--mixed_precision", "", kText, kMapped, kKey, "no fp16 bf16 fp8"},
    {"--num_processes", "", kInt, kMapped, kKey, ""},
    {"--num_machines", "", kInt, kMapped, kKey, ""},
    {"--num_cpu_threads_per_process", "", kInt, kMapped, "compute threads of a rank on a CPU", ""},
    {"--enable_cpu_affinity", "", kFlag, kNotNeeded, "each rank has its share of the cores", ""},
    {"--dynamo_backend", "", kText, kNotNeeded, kCompiler, ""},
    {"--dynamo_mode", "", kText, kNotNeeded, kCompiler, ""},
    {"--dynamo_use_fullgraph", "", kFlag, kNotNeeded, kCompiler, ""},
    {"--dynamo_use_dynamic", "", kFlag, kNotNeeded, kCompiler, ""},
    {"--dynamo_use_regional_compilation", "", kFlag, kNotNeeded, kCompiler, ""},
    {"--use_deepspeed", "", kFlag, kMapped, kKey, ""},
    {"--use_fsdp", "", kFlag, kMapped, kKey, ""},
    {"--use_parallelism_config", "", kFlag, kRefused, "give parallel.tensor with --set", ""},
    {"--use_megatron_lm", "", kFlag, kRefused, "give Megatron-LM's own command line", ""},
    {"--gpu_ids", "", kText, kMapped, kKey, ""},
    {"--same_network", "", kFlag, kMapped, kKey, ""},
    {"--machine_rank", "", kInt, kMapped, kKey, ""},
    {"--main_process_ip", "", kText, kMapped, kKey, ""},
    {"--main_process_port", "", kInt, kMapped, kKey, ""},
    {"--tee", "-t", kText, kNotNeeded, kLogs, ""},
    {"--log_dir", "", kText, kNotNeeded, kLogs, ""},
    {"--role", "", kText, kNotNeeded, "all ranks of Sluice have one role", ""},
    {"--rdzv_backend", "", kText, kMapped, kKey, ""},
    {"--rdzv_conf", "", kText, kNotNeeded, "Sluice has one rendezvous, at the first host", ""},
    {"--max_restarts", "", kInt, kMapped, "Sluice restarts from the newest checkpoint", ""},
    {"--monitor_interval", "", kFloat, kNotNeeded, "Sluice watches its ranks itself", ""},
    {"--module", "-m", kFlag, kNotNeeded, kPython, ""},
    {"--no_python", "", kFlag, kNotNeeded, kPython, ""},
    {"--downcast_bf16", "", kFlag, kRefused, kTpu, ""},
    {"--deepspeed_config_file", "", kText, kMapped, kKey, ""},
    {"--zero_stage", "", kInt, kMapped, kKey, ""},
    {"--offload_optimizer_device", "", kText, kMapped, kKey, ""},
    {"--offload_param_device", "", kText, kMapped, kKey, ""},
    {"--offload_optimizer_nvme_path", "", kText, kMapped, kKey, ""},
    {"--offload_param_nvme_path", "", kText, kMapped, kKey, ""},
    {"--gradient_accumulation_steps", "", kInt, kMapped, kKey, ""},
    {"--gradient_clipping", "", kFloat, kMapped, kKey, ""},
    {"--zero3_init_flag", "", kText, kMapped, kKey, ""},
    {"--zero3_save_16bit_model", "", kText, kMapped, kKey, ""},
    {"--deepspeed_hostfile", "", kText, kMapped, kKey, ""},
    {"--deepspeed_exclusion_filter", "", kText, kMapped, kKey, ""},
    {"--deepspeed_inclusion_filter", "", kText, kMapped, kKey, ""},
    {"--deepspeed_multinode_launcher", "", kText, kMapped, kKey, ""},
    {"--deepspeed_moe_layer_cls_names", "", kText, kMapped, kKey, ""},
    {"--debug", "", kFlag, kNotNeeded, "Sluice names the rank and the collective that failed", ""},
    {"--main_training_function", "", kText, kNotNeeded, "a function of a Python script", ""},
}};

// Arguments of FSDP: keys of fsdp_config with the same name.
constexpr std::array<std::string_view, 15> kFsdp{
    "--fsdp_version",
    "--fsdp_offload_params",
    "--fsdp_min_num_params",
    "--fsdp_sharding_strategy",
    "--fsdp_reshard_after_forward",
    "--fsdp_auto_wrap_policy",
    "--fsdp_transformer_layer_cls_to_wrap",
    "--fsdp_backward_prefetch",
    "--fsdp_state_dict_type",
    "--fsdp_forward_prefetch",
    "--fsdp_use_orig_params",
    "--fsdp_cpu_ram_efficient_loading",
    "--fsdp_sync_module_states",
    "--fsdp_activation_checkpointing",
    "--fsdp_state_dict_config",
};

std::vector<ArgumentRule> all_rules() {
  std::vector<ArgumentRule> rules(kAccelerateRules.begin(), kAccelerateRules.end());
  for (const std::string_view name : kFsdp) {
    rules.push_back({name, "", kText, kMapped, kKey, ""});
  }
  return rules;
}

bool is_deepspeed_key(std::string_view name) {
  constexpr std::array<std::string_view, 8> kWords{"zero_stage",
                                                   "offload_optimizer_device",
                                                   "offload_param_device",
                                                   "zero3_init_flag",
                                                   "offload_optimizer_nvme_path",
                                                   "offload_param_nvme_path",
                                                   "gradient_accumulation_steps",
                                                   "gradient_clipping"};
  for (const std::string_view word : kWords) {
    if (name == word) return true;
  }
  return name == "zero3_save_16bit_model" || name.starts_with("deepspeed_");
}

// Sets an entry of an object, at the place of the argument.
void put(HjsonNode& object, const std::string& key, HjsonNode value, int number) {
  object.kind = HjsonNode::Kind::kObject;
  value.line = 0;
  value.column = number;
  for (HjsonEntry& entry : object.entries) {
    if (entry.key != key) continue;
    entry = {key, 0, number, std::move(value)};
    return;
  }
  object.entries.push_back({key, 0, number, std::move(value)});
}

HjsonNode& section(HjsonNode& root, const std::string& name) {
  for (HjsonEntry& entry : root.entries) {
    if (entry.key == name) return entry.value;
  }
  root.entries.push_back({name, 0, 0, {}});
  root.entries.back().value.kind = HjsonNode::Kind::kObject;
  return root.entries.back().value;
}

class AccelerateLauncher {
 public:
  AccelerateLauncher(LaunchPart& part, const ArgumentReading& given) : part_(part), given_(given) {}

  void map() {
    if (!read_file()) return part_.finish();
    for (const Argument& argument : given_.arguments) apply(argument);
    choose_type();
    if (const std::int64_t restarts = given_.count("--max_restarts", 0); restarts > 0) {
      part_.set("--max_restarts", "launch.max_restarts", std::to_string(restarts),
                format_text("--max_restarts {}", restarts));
    }
    if (const std::int64_t threads = given_.count("--num_cpu_threads_per_process", 0);
        threads > 0) {
      part_.set("--num_cpu_threads_per_process", "launch.threads", std::to_string(threads),
                format_text("--num_cpu_threads_per_process {}", threads));
    }
    part_.finish();
    part_.result().accelerate = std::move(file_);
  }

 private:
  // False if the file is wrong.
  bool read_file() {
    const std::string fallback = "~/.cache/huggingface/accelerate/default_config.yaml";
    const std::string path = given_.text("--config_file", fallback);
    const auto text = part_.file(path);
    if (text) {
      file_ = read_accelerate_file(*text, path);
      has_file_ = true;
      auto& errors = part_.result().errors;
      errors.insert(errors.end(), file_.errors.begin(), file_.errors.end());
      return file_.errors.empty();
    }
    file_ = {.file = "--launch",
             .root = {},
             .distributed_type = "NO",
             .mixed_precision = "no",
             .errors = {}};
    file_.root.kind = HjsonNode::Kind::kObject;
    if (!given_.has("--config_file")) return true;
    part_.error("--config_file", format_text("cannot read '{}'; check the path", path));
    return false;
  }
  void apply(const Argument& argument) {
    const std::string key(argument.rule->name.substr(2));
    const bool is_flag = argument.rule->type == kFlag;
    HjsonNode value = typed_word(is_flag ? "true" : argument.value);
    if (key == "cpu") {
      put(file_.root, "use_cpu", std::move(value), argument.number);
    } else if (is_deepspeed_key(key)) {
      put(section(file_.root, "deepspeed_config"), key, std::move(value), argument.number);
    } else if (key.starts_with("fsdp_")) {
      put(section(file_.root, "fsdp_config"), key, std::move(value), argument.number);
    } else if (key == "mixed_precision") {
      file_.mixed_precision = argument.value;
      value.kind = HjsonNode::Kind::kText;
      put(file_.root, key, std::move(value), argument.number);
    } else if (argument.rule->note == kKey && !is_type(key)) {
      put(file_.root, key, std::move(value), argument.number);
    }
  }
  static bool is_type(std::string_view key) {
    return key == "multi_gpu" || key == "use_deepspeed" || key == "use_fsdp";
  }
  void choose_type() {
    const std::map<std::string_view, std::string_view> types{
        {"--use_deepspeed", "DEEPSPEED"}, {"--use_fsdp", "FSDP"}, {"--multi_gpu", "MULTI_GPU"}};
    std::string_view chosen;
    const Argument* origin = nullptr;
    for (const auto& [name, type] : types) {
      const Argument* found = given_.find(name);
      if (found == nullptr) continue;
      if (origin != nullptr) {
        part_.error(name,
                    format_text("accelerate refuses it beside {}; keep one", origin->rule->name));
      }
      origin = found;
      chosen = type;
    }
    if (origin == nullptr && has_file_) return;
    if (origin == nullptr) {
      chosen = given_.count("--num_processes", 1) > 1 ? "MULTI_GPU" : "NO";
    }
    file_.distributed_type = chosen;
    HjsonNode value;
    value.kind = HjsonNode::Kind::kText;
    value.text = chosen;
    put(file_.root, "distributed_type", std::move(value), origin == nullptr ? 0 : origin->number);
  }

  LaunchPart& part_;
  const ArgumentReading& given_;
  AccelerateFile file_;
  bool has_file_ = false;
};

}  // namespace

void map_accelerate_launcher(LaunchPart& part, const std::vector<std::string>& words,
                             std::size_t first) {
  static const std::vector<ArgumentRule> rules = all_rules();
  AccelerateLauncher(part, part.read(words, first, rules, {.program = "accelerate launch"})).map();
}

}  // namespace sluice::migrate
