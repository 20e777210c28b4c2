#include "configs/migrate/launcher/accelerate_config.hpp"

#include <algorithm>
#include <array>

#include "base/format.hpp"
#include "configs/migrate/launcher/shell_command.hpp"
#include "configs/migrate/launcher/yaml_values.hpp"
#include "configs/suggest.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

using Kind = HjsonNode::Kind;
using enum KeyClass;

enum class Value { kText, kStage, kDevice, kCount, kNumber, kFlag };

struct SectionKey {
  std::string_view name;
  Value value;
  KeyClass kind;
  std::string_view target;  // path in DeepSpeed's configuration, or ""
  std::string_view note;
};

constexpr std::string_view kHosts = "hosts of the run";

constexpr std::array<SectionKey, 15> kKeys{{
    {"deepspeed_config_file", Value::kText, kMapped, "", "the DeepSpeed configuration"},
    {"zero_stage", Value::kStage, kMapped, "zero_optimization.stage", ""},
    {"gradient_accumulation_steps", Value::kCount, kMapped, "gradient_accumulation_steps", ""},
    {"gradient_clipping", Value::kNumber, kMapped, "gradient_clipping", ""},
    {"offload_optimizer_device", Value::kDevice, kMapped,
     "zero_optimization.offload_optimizer.device", ""},
    {"offload_param_device", Value::kDevice, kMapped, "zero_optimization.offload_param.device", ""},
    {"offload_optimizer_nvme_path", Value::kText, kMapped,
     "zero_optimization.offload_optimizer.nvme_path", ""},
    {"offload_param_nvme_path", Value::kText, kMapped, "zero_optimization.offload_param.nvme_path",
     ""},
    {"zero3_save_16bit_model", Value::kFlag, kMapped,
     "zero_optimization.stage3_gather_16bit_weights_on_model_save", ""},
    {"zero3_init_flag", Value::kFlag, kNotNeeded, "",
     "each rank of Sluice creates its shard alone"},
    {"deepspeed_multinode_launcher", Value::kText, kMapped, "", kHosts},
    {"deepspeed_hostfile", Value::kText, kMapped, "", kHosts},
    {"deepspeed_inclusion_filter", Value::kText, kMapped, "", kHosts},
    {"deepspeed_exclusion_filter", Value::kText, kMapped, "", kHosts},
    {"deepspeed_moe_layer_cls_names", Value::kText, kRefused, "", "Sluice has no expert layers"},
}};

const SectionKey* find_key(std::string_view name) {
  const auto found = std::find_if(kKeys.begin(), kKeys.end(),
                                  [name](const SectionKey& key) { return key.name == name; });
  return found == kKeys.end() ? nullptr : &*found;
}

bool is_none(const HjsonNode* node) {
  return node == nullptr || node->kind == Kind::kNull ||
         (node->kind == Kind::kText && (node->text == "none" || node->text.empty()));
}

// "cause; remedy", or "".
std::string check_value(const SectionKey& key, const HjsonNode& value) {
  if (is_none(&value) || value.text == "auto") return {};
  const std::string written = in_quotes(value.text);
  switch (key.value) {
    case Value::kText:
      return {};
    case Value::kStage:
      if (value.integer && *value.integer >= 0 && *value.integer <= 3) return {};
      return written + " is no stage; give 0, 1, 2 or 3";
    case Value::kDevice:
      if (value.text == "cpu" || value.text == "nvme") return {};
      return written + " is no device; give none, cpu or nvme";
    case Value::kCount:
      if (value.integer && *value.integer >= 1) return {};
      return written + " is no count; give 1 or more, or auto";
    case Value::kNumber:
      if (value.kind == Kind::kNumber && value.number >= 0) return {};
      return written + " is no number; give 0 or more, or auto";
    case Value::kFlag:
      if (value.kind == Kind::kBool) return {};
      return written + " is neither true nor false; give one of them";
  }
  return {};
}

HjsonNode leaf(Kind kind, std::string text) {
  HjsonNode node;
  node.kind = kind;
  node.text = std::move(text);
  return node;
}

HjsonNode flag(bool value) {
  HjsonNode node = leaf(Kind::kBool, value ? "true" : "false");
  node.boolean = value;
  return node;
}

void add_entry(HjsonNode& object, std::string_view key, HjsonNode value) {
  object.kind = Kind::kObject;
  const int line = value.line;
  const int column = value.column;
  object.entries.push_back({std::string(key), line, column, std::move(value)});
}

class DeepSpeedPlugin {
 public:
  DeepSpeedPlugin(const AccelerateFile& file, const LaunchOptions& options, MigrationDraft& draft)
      : file_(file), options_(options), draft_(draft), section_(file.section("deepspeed_config")) {}

  AccelerateDeepSpeed map() {
    job_ = map_accelerate_job(file_, draft_);
    add_keys();
    add_precision();
    made_.world = job_.world;
    if (const HjsonNode* path = given("deepspeed_config_file"); !is_none(path)) {
      made_.config_file = path->text;
      refuse_beside_file();
      fill_autos();
    } else {
      build();
    }
    start();
    return std::move(made_);
  }

 private:
  [[nodiscard]] const HjsonNode* given(std::string_view name) const {
    return section_ == nullptr ? nullptr : section_->find(name);
  }
  void error(const HjsonEntry& entry, std::string_view what) {
    std::string place = file_.file;
    if (entry.line > 0) place += format_text(":{}:{}", entry.line, entry.column);
    const std::string path = "deepspeed_config." + entry.key;
    made_.errors.push_back({path, format_text("{}: {}: {}", place, path, what)});
  }
  void add(const HjsonEntry& entry, KeyClass kind, std::string note) {
    draft_.add({.path = "deepspeed_config." + entry.key,
                .place = {entry.line, entry.column},
                .value = to_json(entry.value),
                .kind = kind,
                .stops = kind == kRefused && !is_none(&entry.value),
                .to = {},
                .note = std::move(note)});
  }
  void add_keys() {
    if (section_ == nullptr) return;
    for (const HjsonEntry& entry : section_->entries) {
      const SectionKey* key = find_key(entry.key);
      if (key == nullptr) {
        add_unknown(entry);
        continue;
      }
      if (std::string what = check_value(*key, entry.value); !what.empty()) {
        error(entry, what);
        continue;
      }
      add_known(*key, entry);
    }
  }
  void add_unknown(const HjsonEntry& entry) {
    std::vector<std::string_view> names;
    for (const SectionKey& key : kKeys) names.push_back(key.name);
    const auto near = nearest(entry.key, names);
    add(entry, kIgnored,
        near ? format_text("accelerate does not read it; nearest is {}", *near)
             : "accelerate does not read it");
  }
  void add_known(const SectionKey& key, const HjsonEntry& entry) {
    if (key.target.empty()) return add(entry, key.kind, std::string(key.note));
    std::string note = format_text("{} of DeepSpeed's configuration", key.target);
    if (key.name == "gradient_clipping" && entry.value.kind == Kind::kNumber &&
        entry.value.number == 0) {
      return add(entry, kChanged, "accelerate drops 0, so that DeepSpeed's default clips");
    }
    if (key.name.ends_with("_nvme_path") && !is_none(&entry.value)) {
      note += "; accelerate launch itself does not pass the path on";
    }
    add(entry, key.kind, std::move(note));
  }
  void add_precision() {
    for (const HjsonEntry& entry : file_.root.entries) {
      if (entry.key != "mixed_precision" && entry.key != "fp16") continue;
      const bool is_fp8 = file_.mixed_precision == "fp8";
      draft_.add({.path = entry.key,
                  .place = {entry.line, entry.column},
                  .value = to_json(entry.value),
                  .kind = is_fp8 ? kRefused : kMapped,
                  .stops = is_fp8,
                  .to = {},
                  .note = is_fp8 ? "set bf16 here, and train.matmul: fp8 in Sluice's file"
                                 : "fp16 and bf16 of DeepSpeed's configuration"});
    }
  }
  // accelerate refuses keys that the other file has.
  void refuse_beside_file() {
    constexpr std::string_view kRemedy =
        "accelerate refuses it beside deepspeed_config_file; write it into that file";
    for (const HjsonEntry& entry : section_->entries) {
      const SectionKey* key = find_key(entry.key);
      // An argument of accelerate launch (line 0) fills "auto" values.
      if (key != nullptr && !key->target.empty() && entry.line > 0) error(entry, kRemedy);
    }
    for (const HjsonEntry& entry : file_.root.entries) {
      if (entry.key != "mixed_precision" || entry.line == 0 || entry.value.kind == Kind::kNull) {
        continue;
      }
      made_.errors.push_back({entry.key, format_text("{}:{}:{}: {}: {}", file_.file, entry.line,
                                                     entry.column, entry.key, kRemedy)});
    }
  }
  void fill_autos() {
    made_.autos = {{"zero_optimization.stage", "2"},
                   {"zero_optimization.offload_optimizer.device", "\"none\""},
                   {"zero_optimization.offload_param.device", "\"none\""},
                   {"zero_optimization.stage3_gather_16bit_weights_on_model_save", "false"}};
    for (const SectionKey& key : kKeys) {
      const HjsonNode* value = given(key.name);
      if (!key.target.empty() && !is_none(value) && value->text != "auto") {
        made_.autos[std::string(key.target)] = to_json(*value);
      }
    }
    made_.autos["fp16.enabled"] = file_.mixed_precision == "fp16" ? "true" : "false";
    made_.autos["bf16.enabled"] = file_.mixed_precision == "bf16" ? "true" : "false";
  }
  // The value of the file, or accelerate's default.
  [[nodiscard]] HjsonNode value_or(std::string_view name, const HjsonNode& fallback) const {
    const HjsonNode* value = given(name);
    return value == nullptr || value->kind == Kind::kNull ? fallback : *value;
  }
  HjsonNode offload(const std::string& name) {
    HjsonNode section;
    HjsonNode device = value_or(name + "_device", leaf(Kind::kText, "none"));
    const bool is_nvme = device.text == "nvme";
    add_entry(section, "device", std::move(device));
    add_entry(section, "nvme_path",
              is_nvme ? value_or(name + "_nvme_path", leaf(Kind::kText, "none")) : HjsonNode{});
    return section;
  }
  void build() {
    HjsonNode& config = made_.config;
    const HjsonNode any = leaf(Kind::kText, "auto");
    add_entry(config, "train_batch_size", any);
    add_entry(config, "train_micro_batch_size_per_gpu", any);
    add_entry(config, "gradient_accumulation_steps", value_or("gradient_accumulation_steps", any));
    HjsonNode zero;
    HjsonNode stage = leaf(Kind::kNumber, "2");
    stage.number = 2;
    stage.integer = 2;
    add_entry(zero, "stage", value_or("zero_stage", stage));
    add_entry(zero, "offload_optimizer", offload("offload_optimizer"));
    add_entry(zero, "offload_param", offload("offload_param"));
    add_entry(zero, "stage3_gather_16bit_weights_on_model_save",
              value_or("zero3_save_16bit_model", flag(false)));
    add_entry(config, "zero_optimization", std::move(zero));
    HjsonNode clip = value_or("gradient_clipping", any);
    const bool drops = clip.kind == Kind::kNumber && clip.number == 0;
    if (!drops) add_entry(config, "gradient_clipping", std::move(clip));
    HjsonNode fp16;
    const bool is_fp16 = file_.mixed_precision == "fp16";
    add_entry(fp16, "enabled", flag(is_fp16));
    if (is_fp16) add_entry(fp16, "auto_cast", flag(true));
    add_entry(config, "fp16", std::move(fp16));
    HjsonNode bf16;
    add_entry(bf16, "enabled", flag(file_.mixed_precision == "bf16"));
    add_entry(config, "bf16", std::move(bf16));
  }
  // The command that accelerate runs, mapped as if it stood on the line.
  void start() {
    // Without a hostfile, DeepSpeed's launcher starts the ranks of one machine alone.
    const bool has_hosts = launcher() == "standard" || !is_none(given("deepspeed_hostfile"));
    if (job_.machines > 1 && !has_hosts) made_.start_note = start_on_hosts(job_);
    if (job_.machines == 1 || !has_hosts) {
      std::string command = shell_join(job_.environment);
      command += command.empty() ? "" : " ";
      made_.commands.push_back(command + "./sluice train " + shell_quote(options_.config));
      return;
    }
    Migration scratch;
    MigrationDraft draft(scratch);
    const LaunchLine launch = map_launch_line(shell_join(launcher_words()), options_, draft);
    for (const MigrationError& error : launch.errors) {
      made_.errors.push_back({error.path, file_.file + ": hosts: " + error.text});
    }
    for (const MigratedKey& key : scratch.keys) {
      if (key.stops) {
        made_.errors.push_back(
            {key.path, format_text("{}: deepspeed_config.deepspeed_multinode_launcher: {}",
                                   file_.file, key.note)});
      }
    }
    if (const std::string* hostfile = draft.value("launch.hostfile")) {
      draft_.set("deepspeed_config.deepspeed_hostfile", "launch.hostfile", *hostfile,
                 "deepspeed_config.deepspeed_hostfile");
    }
    for (const std::string& note : scratch.notes) draft_.note(note);
    if (launch.world > 0) made_.world = launch.world;
    made_.hostfile_text = launch.hostfile_text;
    made_.commands = launch.commands;
  }
  [[nodiscard]] std::string launcher() const {
    return value_or("deepspeed_multinode_launcher", leaf(Kind::kText, "pdsh")).text;
  }
  [[nodiscard]] std::vector<std::string> launcher_words() const {
    std::vector<std::string> words = job_.environment;
    std::erase_if(words, [](const std::string& word) { return word.starts_with("MASTER_"); });
    const std::string launcher = this->launcher();
    const std::string ranks = std::to_string(std::max(1, job_.world / job_.machines));
    const HjsonNode* rank = file_.root.find("machine_rank");
    const std::string machine = is_none(rank) ? "0" : rank->text;
    const HjsonNode* ip = file_.root.find("main_process_ip");
    const HjsonNode* port = file_.root.find("main_process_port");
    const std::string ports = is_none(port) ? "29500" : port->text;
    const auto add = [&words](std::initializer_list<std::string> more) {
      words.insert(words.end(), more);
    };
    if (launcher == "standard") {
      add({"torchrun", "--nproc_per_node", ranks, "--nnodes", std::to_string(job_.machines),
           "--node_rank", machine});
      if (!is_none(ip)) add({"--rdzv_endpoint", ip->text + ":" + ports});
      add({"script"});
      return words;
    }
    add({"deepspeed"});
    add({"--hostfile", given("deepspeed_hostfile")->text});
    add({"--launcher", launcher == "nossh" ? "pdsh" : launcher});
    if (launcher == "nossh") add({"--no_ssh", "--node_rank", machine});
    const HjsonNode* exclude = given("deepspeed_exclusion_filter");
    const HjsonNode* include = given("deepspeed_inclusion_filter");
    if (!is_none(exclude)) {
      add({"--exclude", exclude->text});
    } else if (!is_none(include)) {
      add({"--include", include->text});
    } else {
      add({"--num_gpus", ranks});
    }
    if (!is_none(ip)) add({"--master_addr", ip->text});
    if (!is_none(port)) add({"--master_port", ports});
    add({"script"});
    return words;
  }

  const AccelerateFile& file_;
  const LaunchOptions& options_;
  MigrationDraft& draft_;
  const HjsonNode* section_;
  AccelerateJob job_;
  AccelerateDeepSpeed made_;
};

}  // namespace

AccelerateDeepSpeed map_accelerate_deepspeed(const AccelerateFile& file,
                                             const LaunchOptions& options, MigrationDraft& draft) {
  return DeepSpeedPlugin(file, options, draft).map();
}

std::vector<MigrationError> complete_deepspeed_file(const AccelerateFile& file, HjsonNode& root) {
  if (root.find("gradient_accumulation_steps") == nullptr) {
    HjsonNode one = leaf(Kind::kNumber, "1");
    one.number = 1;
    one.integer = 1;
    add_entry(root, "gradient_accumulation_steps", std::move(one));
  }
  if (root.find("zero_optimization") != nullptr) return {};
  return {{"zero_optimization",
           format_text("{}: deepspeed_config.deepspeed_config_file: accelerate refuses a file "
                       "without zero_optimization; add the section",
                       file.file)}};
}

std::map<std::string, std::string, std::less<>> accelerate_fallbacks() {
  return {{"gradient_accumulation_steps", "1"}, {"gradient_clipping", "1.0"}};
}

}  // namespace sluice::migrate
