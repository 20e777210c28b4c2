#include "configs/suggest.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace sluice {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

struct Pair {
  std::string_view theirs, ours;
};

constexpr std::array<std::string_view, 6> kOwnSections{"base",  "model",    "data",
                                                       "train", "parallel", "recompute"};
constexpr std::array<std::string_view, 5> kDeepSpeedNames{
    "zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu", "steps_per_print",
    "wall_clock_breakdown"};
constexpr std::array<std::string_view, 6> kTrainerNames{
    "per_device_train_batch_size", "num_train_epochs", "output_dir",
    "lr_scheduler_type",           "logging_steps",    "save_strategy"};

constexpr std::array<Pair, 58> kKeys{
    {{"num_hidden_layers", "model.layers"},
     {"num_layers", "model.layers"},
     {"n_layer", "model.layers"},
     {"n_embd", "model.hidden"},
     {"num_attention_heads", "model.heads"},
     {"num_heads", "model.heads"},
     {"n_head", "model.heads"},
     {"num_key_value_heads", "model.kv_heads"},
     {"intermediate_size", "model.ffn"},
     {"max_position_embeddings", "model.seq"},
     {"layer_norm_epsilon", "model.norm_eps"},
     {"model_type", "model.type"},
     {"fp16", "train.dtype"},
     {"bf16", "train.dtype"},
     {"learning_rate", "optimizer.lr"},
     {"adam_beta1", "optimizer.betas"},
     {"adam_beta2", "optimizer.betas"},
     {"adam_epsilon", "optimizer.eps"},
     {"batch_size", "train.micro_batch"},
     {"train_batch_size", "train.global_batch"},
     {"per_device_train_batch_size", "train.micro_batch"},
     {"train_micro_batch_size_per_gpu", "train.micro_batch"},
     {"micro_batch_size", "train.micro_batch"},
     {"global_batch_size", "train.global_batch"},
     {"gradient_accumulation_steps", "train.global_batch"},
     {"max_steps", "train.steps"},
     {"num_steps", "train.steps"},
     {"max_iters", "train.steps"},
     {"train_iters", "train.steps"},
     {"max_grad_norm", "train.clip"},
     {"grad_clip", "train.clip"},
     {"gradient_clipping", "train.clip"},
     {"precision", "train.dtype"},
     {"logging_steps", "train.log_every"},
     {"warmup_ratio", "schedule.warmup_steps"},
     {"warmup_iters", "schedule.warmup_steps"},
     {"lr_scheduler_type", "schedule.type"},
     {"save_steps", "checkpoint.every"},
     {"save_total_limit", "checkpoint.keep"},
     {"output_dir", "output.dir"},
     {"gradient_checkpointing", "recompute.mode"},
     {"hidden_size", "model.hidden"},
     {"vocab_size", "model.vocab"},
     {"seq_length", "model.seq"},
     {"max_seq_length", "model.seq"},
     {"model_name_or_path", "model.from"},
     {"tensor_model_parallel_size", "parallel.tensor"},
     {"pipeline_model_parallel_size", "parallel.pipeline"},
     {"activation_checkpointing", "recompute.mode"},
     {"zero_optimization", "zero"},
     {"offload_optimizer", "offload.optimizer"},
     {"offload_param", "offload.parameters"},
     {"cpu_offload", "offload.optimizer"},
     {"reduce_bucket_size", "zero.bucket_bytes"},
     {"prefetch_bucket_size", "zero.prefetch_units"},
     {"stage3_prefetch_bucket_size", "zero.prefetch_units"},
     {"param_persistence_threshold", "zero.persist_below"},
     {"stage3_param_persistence_threshold", "zero.persist_below"}}};

// Options of the commands; launchers write one name with hyphens or with underscores.
constexpr std::array<Pair, 12> kOptions{{{"num_gpus", "nproc"},
                                         {"gpus", "nproc"},
                                         {"nproc_per_node", "nproc"},
                                         {"num_processes", "nproc"},
                                         {"world_size", "world"},
                                         {"resume_from_checkpoint", "resume"},
                                         {"max_new_tokens", "max-tokens"},
                                         {"output_dir", "output"},
                                         {"text_key", "json-key"},
                                         {"workers", "threads"},
                                         {"num_workers", "threads"},
                                         {"num_proc", "threads"}}};

constexpr std::array<Pair, 6> kWords{{{"bfloat16", "bf16"},
                                      {"float16", "fp16"},
                                      {"half", "fp16"},
                                      {"float32", "fp32"},
                                      {"float", "fp32"},
                                      {"full", "fp32"}}};

std::optional<std::string_view> ours_of(std::span<const Pair> table, std::string_view theirs) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const Pair& pair) { return pair.theirs == theirs; });
  return found == table.end() ? std::nullopt : std::optional(found->ours);
}

bool has_any(const std::vector<std::string_view>& names, std::span<const std::string_view> of) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) {
    return std::find(of.begin(), of.end(), name) != of.end();
  });
}

// "name": in the text.
bool has_json_key(std::string_view text, std::string_view name) {
  const std::string quoted = '"' + std::string(name) + '"';
  for (std::size_t at = text.find(quoted); at != text.npos; at = text.find(quoted, at + 1)) {
    const std::size_t next = text.find_first_not_of(" \t\r\n", at + quoted.size());
    if (next != text.npos && text[next] == ':') return true;
  }
  return false;
}

// `deepspeed` is the DeepSpeed file of a job whose training arguments stand in `path`.
std::string complaint_of(ForeignFile found, const std::string& path, const std::string& deepspeed) {
  if (found == ForeignFile::kDeepSpeed) {
    return "this is a DeepSpeed configuration: `sluice migrate " + path +
           "` makes a Sluice configuration of it";
  }
  return "these are training arguments of Hugging Face's Trainer: `sluice migrate " + deepspeed +
         " --trainer " + path + "`, with the job's DeepSpeed file, makes a Sluice configuration " +
         "of them";
}

constexpr const char* kSomeDeepSpeedFile = "DS.json";

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> above(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
          lower(a[i - 2]) == lower(b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

std::optional<std::string_view> nearest(std::string_view name,
                                        const std::vector<std::string_view>& names) {
  constexpr std::size_t kLongestName = 64;  // a longer one is no slip of the finger
  if (name.empty() || name.size() > kLongestName) return std::nullopt;
  std::optional<std::string_view> best;
  std::size_t best_distance = 0;
  for (const std::string_view candidate : names) {
    const std::size_t longer = std::max(name.size(), candidate.size());
    const std::size_t limit = longer <= 2   ? 0
                              : longer == 3 ? 1
                                            : std::max<std::size_t>(2, longer / 3);
    const std::size_t distance = edit_distance(name, candidate);
    if (distance > limit || distance >= longer) continue;
    if (!best || distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::optional<ForeignFile> foreign_file(const std::vector<std::string_view>& names) {
  if (has_any(names, kOwnSections)) return std::nullopt;
  if (has_any(names, kDeepSpeedNames)) return ForeignFile::kDeepSpeed;
  if (has_any(names, kTrainerNames)) return ForeignFile::kTrainer;
  return std::nullopt;
}

std::string recipe_complaint(const YamlNode& root) {
  const auto value_of = [&root](std::string_view name) -> const YamlNode* {
    for (const YamlEntry& entry : root.entries) {
      if (entry.key.text == name) return &entry.value;
    }
    return nullptr;
  };
  const auto has = [&](std::string_view name) { return value_of(name) != nullptr; };
  const bool is_axolotl =
      has("base_model") && (has("datasets") || has("pretraining_dataset") || has("sequence_len") ||
                            has("micro_batch_size") || has("adapter"));
  const bool is_factory = has("finetuning_type") || (has("stage") && has("template")) ||
                          (has("model_class") && has("train_dataset"));
  if (!is_axolotl && !is_factory) return "";
  const YamlNode* const named = value_of("deepspeed");
  const bool has_name =
      named != nullptr && named->kind == YamlNode::Kind::kScalar && !named->text.empty();
  return std::string("this is a file of ") + (is_axolotl ? "axolotl" : "LLaMA-Factory") +
         ", whose model, data and adapters would be lost: give its DeepSpeed file, `sluice "
         "migrate " +
         (has_name ? printable(named->text, 200) : kSomeDeepSpeedFile) +
         "`, and batch, optimizer and schedule with --set";
}

std::string foreign_complaint(const YamlNode& root, const std::string& path) {
  if (std::string recipe = recipe_complaint(root); !recipe.empty()) return recipe;
  std::vector<std::string_view> names;
  for (const YamlEntry& entry : root.entries) names.emplace_back(entry.key.text);
  const std::optional<ForeignFile> found = foreign_file(names);
  if (!found) return "";
  // The Trainer's arguments name the DeepSpeed file; where they do not, the user must.
  std::string deepspeed = kSomeDeepSpeedFile;
  for (const YamlEntry& entry : root.entries) {
    const bool names_file = entry.key.text == "deepspeed" &&
                            entry.value.kind == YamlNode::Kind::kScalar &&
                            !entry.value.text.empty();
    if (names_file) deepspeed = printable(entry.value.text);
  }
  return complaint_of(*found, path, deepspeed);
}

std::string foreign_text_complaint(std::string_view text, const std::string& path) {
  std::vector<std::string_view> names;
  const auto add = [&](std::span<const std::string_view> known) {
    for (const std::string_view name : known) {
      if (has_json_key(text, name)) names.push_back(name);
    }
  };
  add(kDeepSpeedNames);
  add(kTrainerNames);
  const std::optional<ForeignFile> found = foreign_file(names);
  return found ? complaint_of(*found, path, kSomeDeepSpeedFile) : "";
}

bool is_own_file(const std::vector<std::string_view>& names) {
  return has_any(names, kOwnSections) && !has_any(names, kDeepSpeedNames);
}

std::optional<std::string_view> key_for_foreign(std::string_view name) {
  return ours_of(kKeys, name);
}

std::optional<std::string_view> option_for_foreign(std::string_view name) {
  std::string underscored(name);
  std::replace(underscored.begin(), underscored.end(), '-', '_');
  return ours_of(kOptions, underscored);
}

std::optional<std::string_view> word_for_foreign(std::string_view word) {
  return ours_of(kWords, word);
}

}  // namespace sluice
