#include "configs/migrate/deepspeed/fill_autos.hpp"

#include <array>
#include <cmath>
#include <optional>
#include <variant>

#include "base/format.hpp"
#include "configs/interval.hpp"
#include "configs/migrate/deepspeed/batch_keys.hpp"
#include "configs/migrate/deepspeed/deepspeed_mapping.hpp"
#include "configs/migrate/deepspeed/deepspeed_values.hpp"
#include "configs/schema.hpp"
#include "configs/value.hpp"

namespace sluice::migrate {
namespace {

using Autos = std::map<std::string, std::string, std::less<>>;
using Kind = HjsonNode::Kind;

constexpr std::string_view kLr = "optimizer.params.lr";

// The key of Sluice that an "auto" maps to, with the argument of Hugging Face's Trainer.
struct AutoRow {
  std::string_view path;
  std::string_view key;
  std::string_view example;
  std::string_view argument;
};

constexpr std::array kRows{
    AutoRow{kGlobal, "train.global_batch", "N", "per_device_train_batch_size"},
    AutoRow{kMicro, "train.micro_batch", "N", "per_device_train_batch_size"},
    AutoRow{kAccumulation, "train.global_batch", "N", "gradient_accumulation_steps"},
    AutoRow{"gradient_clipping", "train.clip", "NORM", "max_grad_norm"},
    AutoRow{"fp16.enabled", "train.dtype", "fp16", "fp16"},
    AutoRow{"bf16.enabled", "train.dtype", "bf16", "bf16"},
    AutoRow{kLr, "optimizer.lr", "LR", "learning_rate"},
    AutoRow{"optimizer.params.betas", "optimizer.betas", "[B1,B2]", "adam_beta1 and adam_beta2"},
    AutoRow{"optimizer.params.eps", "optimizer.eps", "EPS", "adam_epsilon"},
    AutoRow{"optimizer.params.weight_decay", "optimizer.weight_decay", "DECAY", "weight_decay"},
    AutoRow{"scheduler.params.warmup_num_steps", "schedule.warmup_steps", "N", "warmup_steps"},
    AutoRow{"scheduler.params.total_num_steps", "schedule.decay_steps", "N", "max_steps"},
    AutoRow{"scheduler.params.warmup_min_lr", "schedule.warmup_min_lr", "LR", ""},
    AutoRow{"scheduler.params.warmup_max_lr", "optimizer.lr", "LR", "learning_rate"},
};

constexpr std::array<std::string_view, 3> kOfWidth{"zero_optimization.reduce_bucket_size",
                                                   "zero_optimization.prefetch_bucket_size",
                                                   "zero_optimization.param_persistence_threshold"};

const HjsonNode* node_at(const HjsonNode& root, std::string_view path) {
  const HjsonNode* node = &root;
  while (node != nullptr && !path.empty()) {
    const std::size_t dot = path.find('.');
    node = node->find(path.substr(0, dot));
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  }
  return node;
}

std::optional<std::int64_t> whole(const HjsonNode* node) {
  if (node == nullptr || node->kind != Kind::kNumber || !node->integer) return std::nullopt;
  return *node->integer > 0 ? node->integer : std::nullopt;
}

std::optional<std::int64_t> whole(const std::optional<std::string>& text, std::string_view key) {
  if (!text) return std::nullopt;
  const auto read = read_scalar(find_key(key)->rules, *text);
  const Value* const value = std::get_if<Value>(&read);
  const auto* const number = value != nullptr ? std::get_if<std::int64_t>(value) : nullptr;
  return number != nullptr && *number > 0 ? std::optional(*number) : std::nullopt;
}

class Filler {
 public:
  Filler(const HjsonNode& root, const DeepSpeedOptions& options) : root_(root), options_(options) {
    for (const auto& [path, json] : options.parse.autos) {
      const DeepSpeedKey* const key = find_deepspeed_key(path);
      filled_.insert_or_assign(key != nullptr ? key->path : path, json);
    }
  }

  Autos fill() {
    dtype();
    batch();
    for (const AutoRow& row : kRows) {
      if (row.path == kAccumulation || row.key == "train.global_batch") continue;
      if (row.key != "train.dtype") from_setting(row.path, row.key);
    }
    schedule();
    width();
    return std::move(filled_);
  }

 private:
  [[nodiscard]] std::optional<std::string> given(std::string_view key) const {
    return setting_of(options_.set, key);
  }
  [[nodiscard]] bool is_auto_at(std::string_view path) const {
    const HjsonNode* node = node_at(root_, path);
    return node != nullptr && is_auto(*node);
  }
  void put(std::string_view path, std::string json) {
    filled_.insert_or_assign(std::string(path), std::move(json));
  }
  void put_if_open(std::string_view path, const std::string& json) {
    filled_.try_emplace(std::string(path), json);
  }

  // Steps of train.steps, for shares of them; 0: not known.
  [[nodiscard]] std::int64_t all_steps() const {
    return whole(given("train.steps"), "train.steps").value_or(0);
  }

  // The learning rate of the file, of a setting or of the arguments.
  [[nodiscard]] std::optional<std::string> rate() const {
    const auto found = filled_.find(kLr);
    const HjsonNode* node = node_at(root_, kLr);
    if (node != nullptr && node->kind == Kind::kNumber && !given("optimizer.lr")) {
      return to_json(*node);
    }
    return found == filled_.end() ? std::nullopt : std::optional(found->second);
  }

  // Fills a key from a setting of Sluice's key. A setting that is broken fills nothing: the caller
  // reports the setting.
  void from_setting(std::string_view path, std::string_view key) {
    const auto text = given(key);
    if (!text) return;
    const Rules& rules = find_key(key)->rules;
    if (rules.type == sluice::KeyType::kFloats) return put(path, *text);
    if (rules.type == sluice::KeyType::kSteps) {
      const auto steps = read_steps(*text);
      const std::int64_t all = all_steps();
      if (!steps || steps->is_auto() || (steps->share > 0 && all == 0)) return;
      return put(path, std::to_string(steps->of(all)));
    }
    if (rules.type == sluice::KeyType::kRate) {
      const auto bound = read_rate(*text);
      const auto lr = rate();
      if (!bound || (bound->share > 0 && !lr)) return;
      return put(path, format_number(bound->of(lr ? value_of_json(*lr).number : 0)));
    }
    const auto read = read_scalar(rules, *text);
    const Value* const value = std::get_if<Value>(&read);
    if (value == nullptr) return;
    if (const auto* number = std::get_if<double>(value)) put(path, format_number(*number));
    if (const auto* count = std::get_if<std::int64_t>(value)) put(path, std::to_string(*count));
  }

  // One of the two flags; a flag that the file sets to true decides the other one.
  void dtype() {
    const auto is_true = [this](std::string_view path) {
      const HjsonNode* node = node_at(root_, path);
      return node != nullptr && node->kind == Kind::kBool && node->boolean;
    };
    const auto text = given("train.dtype");
    if (text) {
      put("fp16.enabled", *text == "fp16" ? "true" : "false");
      put("bf16.enabled", *text == "bf16" ? "true" : "false");
    }
    if (is_true("fp16.enabled")) put("bf16.enabled", "false");
    if (is_true("bf16.enabled")) put("fp16.enabled", "false");
  }

  // The size of one of the three keys: of the file, of a setting or of the arguments.
  [[nodiscard]] std::optional<std::int64_t> size_of(std::string_view path) const {
    if (const auto literal = whole(node_at(root_, path))) return literal;
    const auto found = filled_.find(path);
    // A setting gives the global batch of a file without the key too.
    const bool is_open = is_auto_at(path) || (path == kGlobal && node_at(root_, path) == nullptr);
    if (found == filled_.end() || !is_open) return std::nullopt;
    const HjsonNode node = value_of_json(found->second);
    return whole(&node);
  }

  // Settings count data-parallel ranks, DeepSpeed's train_batch_size the tensor-parallel ranks too.
  void batch() {
    const std::int64_t tensor = whole(node_at(root_, "tensor_parallel.autotp_size")).value_or(1);
    if (const auto micro = whole(given("train.micro_batch"), "train.micro_batch")) {
      put(kMicro, std::to_string(*micro));
    }
    std::int64_t product = 0;
    const auto global = whole(given("train.global_batch"), "train.global_batch");
    if (global && !__builtin_mul_overflow(*global, tensor, &product)) {
      put(kGlobal, std::to_string(product));
      filled_.erase(std::string(kAccumulation));
    } else if (given("train.global_batch") == "auto") {
      filled_.erase(std::string(kGlobal));
      put(kAccumulation, "1");
    }
    // The product rule gives the third size.
    const bool open = is_auto_at(kAccumulation) && !filled_.contains(kAccumulation);
    if (open && size_of(kGlobal)) put(kAccumulation, "null");
    if (is_auto_at(kGlobal) && !size_of(kGlobal) && size_of(kMicro) &&
        (size_of(kAccumulation) || node_at(root_, kAccumulation) == nullptr)) {
      put(kGlobal, "null");
    }
    if (is_auto_at(kMicro) && !size_of(kMicro) && size_of(kGlobal) && size_of(kAccumulation)) {
      put(kMicro, "null");
    }
  }

  void schedule() {
    constexpr std::string_view kTotal = "scheduler.params.total_num_steps";
    const auto decay_steps = given("schedule.decay_steps");
    if (!decay_steps || *decay_steps == "auto") {
      if (all_steps() > 0) put(kTotal, std::to_string(all_steps()));
    }
    put_if_open("scheduler.params.warmup_min_lr", "0");
    if (const auto lr = rate()) put_if_open("scheduler.params.warmup_max_lr", *lr);
  }

  void width() {
    const std::int64_t hidden = options_.hidden;
    if (const auto bytes = whole(given("zero.bucket_bytes"), "zero.bucket_bytes")) {
      put(kOfWidth[0], std::to_string(std::max<std::int64_t>(1, *bytes / 4)));
    }
    if (given("zero.prefetch_units")) put(kOfWidth[1], "0");
    if (given("zero.persist_below")) from_setting(kOfWidth[2], "zero.persist_below");
    constexpr std::int64_t kWidest = std::int64_t{1} << 31;
    if (hidden <= 0 || hidden >= kWidest) return;
    put_if_open(kOfWidth[0], std::to_string(hidden * hidden));
    put_if_open(kOfWidth[1], std::to_string(static_cast<std::int64_t>(
                                 0.9 * static_cast<double>(hidden) * static_cast<double>(hidden))));
    put_if_open(kOfWidth[2], std::to_string(10 * hidden));
  }

  const HjsonNode& root_;
  const DeepSpeedOptions& options_;
  Autos filled_;
};

}  // namespace

ParseOptions fill_autos(const HjsonNode& root, const DeepSpeedOptions& options) {
  ParseOptions parse = options.parse;
  parse.autos = Filler(root, options).fill();
  return parse;
}

std::string flags_for(std::string_view path) {
  for (const std::string_view of_width : kOfWidth) {
    if (path == of_width) return "--hidden-size H, or --model";
  }
  for (const AutoRow& row : kRows) {
    if (row.path != path) continue;
    return format_text("--set {}={}", row.key, row.example) +
           (row.argument.empty() ? "" : format_text(", or {} with --trainer", row.argument));
  }
  return "--trainer";
}

}  // namespace sluice::migrate
