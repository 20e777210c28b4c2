// What the Trainer puts in place of "auto", and what it refuses.
#include <cmath>

#include "base/counted.hpp"
#include "base/format.hpp"
#include "configs/migrate/launcher/trainer_steps.hpp"
#include "configs/migrate/launcher/training_arguments.hpp"
#include "configs/migrate/launcher/yaml_values.hpp"

namespace sluice::migrate {
namespace {

using Kind = HjsonNode::Kind;

// One value that the Trainer compares or fills.
struct Fill {
  std::string path;
  std::string json;
  std::string argument;  // "" where the Trainer fills without comparing
};

constexpr std::int64_t kMost = std::int64_t{1} << 20;

// The optimizer, the scheduler's rates, the precision.
void add_rates(const TrainerValues& values, std::vector<Fill>& all) {
  const std::string lr = values.json("learning_rate");
  const bool fp16 = values.flag("fp16") || values.flag("fp16_full_eval");
  const bool bf16 = values.flag("bf16") || values.flag("bf16_full_eval");
  const std::vector<Fill> fills{
      {"optimizer.params.lr", lr, "learning_rate"},
      {"optimizer.params.betas",
       format_text("[{}, {}]", values.json("adam_beta1"), values.json("adam_beta2")),
       "adam_beta1 and adam_beta2"},
      {"optimizer.params.eps", values.json("adam_epsilon"), "adam_epsilon"},
      {"optimizer.params.weight_decay", values.json("weight_decay"), "weight_decay"},
      {"scheduler.params.warmup_min_lr", "0", ""},
      {"scheduler.params.warmup_max_lr", lr, "learning_rate"},
      {"fp16.enabled", fp16 ? "true" : "false", "fp16 or fp16_full_eval"},
      {"bf16.enabled", bf16 ? "true" : "false", "bf16 or bf16_full_eval"},
  };
  all.insert(all.end(), fills.begin(), fills.end());
}

// Sizes that follow from the model's width.
void add_buckets(const TrainerContext& context, std::vector<Fill>& all) {
  if (context.hidden <= 0 || context.hidden > kMost) return;
  const std::int64_t h = context.hidden;
  const double width = static_cast<double>(h);
  const auto prefetch = static_cast<std::int64_t>(0.9 * width * width);
  all.push_back({"zero_optimization.reduce_bucket_size", std::to_string(h * h), ""});
  if (context.zero_stage != 3) return;
  all.push_back({"zero_optimization.stage3_prefetch_bucket_size", std::to_string(prefetch), ""});
  all.push_back(
      {"zero_optimization.stage3_param_persistence_threshold", std::to_string(10 * h), ""});
}

std::vector<Fill> fills(const TrainerValues& values, const TrainerContext& context) {
  std::vector<Fill> all;
  const auto add = [&all](std::string path, std::string json, std::string argument) {
    all.push_back({std::move(path), std::move(json), std::move(argument)});
  };
  const std::int64_t micro = values.count("per_device_train_batch_size");
  const std::int64_t accumulation = values.count("gradient_accumulation_steps");
  const bool fits = micro > 0 && micro <= kMost && accumulation > 0 && accumulation <= kMost;
  add("train_micro_batch_size_per_gpu", std::to_string(micro), "per_device_train_batch_size");
  add("gradient_accumulation_steps", std::to_string(accumulation), "gradient_accumulation_steps");
  if (context.world > 0 && context.world <= kMost && fits) {
    add("train_batch_size", std::to_string(context.world * micro * accumulation),
        format_text("per_device_train_batch_size x gradient_accumulation_steps x {}",
                    counted(context.world, "rank")));
  }
  add("gradient_clipping", values.json("max_grad_norm"), "max_grad_norm");
  add_rates(values, all);
  add_buckets(context, all);
  const std::int64_t steps = trainer_steps(values, context);
  if (steps > 0) add("scheduler.params.total_num_steps", std::to_string(steps), "max_steps");
  if (const auto warmup = trainer_warmup(values, steps)) {
    add("scheduler.params.warmup_num_steps", std::to_string(std::max<std::int64_t>(1, *warmup)),
        "warmup_steps");
  }
  return all;
}

const HjsonNode* find_path(const HjsonNode& root, std::string_view path) {
  const HjsonNode* node = &root;
  while (node != nullptr && !path.empty()) {
    const std::size_t dot = path.find('.');
    node = node->find(path.substr(0, dot));
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  }
  return node;
}

// Equality of Python: 1 == 1.0 == true.
bool equal(const HjsonNode& a, const HjsonNode& b) {
  const auto is_number = [](const HjsonNode& node) {
    return node.kind == Kind::kNumber || node.kind == Kind::kBool;
  };
  const auto value = [](const HjsonNode& node) {
    return node.kind == Kind::kBool ? (node.boolean ? 1.0 : 0.0) : node.number;
  };
  if (is_number(a) && is_number(b)) return value(a) == value(b);
  if (a.kind != b.kind) return false;
  if (a.kind != Kind::kList) return a.text == b.text;
  if (a.items.size() != b.items.size()) return false;
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    if (!equal(a.items[i], b.items[i])) return false;
  }
  return true;
}

}  // namespace

std::int64_t trainer_steps(const TrainerValues& values, const TrainerContext& context) {
  const std::int64_t steps = values.count("max_steps");
  return steps > 0 ? steps : context.steps;
}

std::optional<std::int64_t> trainer_warmup(const TrainerValues& values, std::int64_t steps) {
  const double given = values.number("warmup_steps");
  if (given >= 1) return static_cast<std::int64_t>(std::min(given, 1e15));
  const double ratio = given > 0 ? given : values.number("warmup_ratio");
  if (!(ratio > 0)) return 0;
  if (steps <= 0) return std::nullopt;
  return static_cast<std::int64_t>(std::ceil(std::min(static_cast<double>(steps) * ratio, 1e15)));
}

TrainerContext trainer_context(const HjsonNode& deepspeed) {
  TrainerContext context;
  context.has_optimizer = deepspeed.find("optimizer") != nullptr;
  context.has_scheduler = deepspeed.find("scheduler") != nullptr;
  const HjsonNode* stage = find_path(deepspeed, "zero_optimization.stage");
  if (stage != nullptr && stage->integer && *stage->integer >= 0 && *stage->integer <= 3) {
    context.zero_stage = static_cast<int>(*stage->integer);
  }
  return context;
}

std::map<std::string, std::string, std::less<>> trainer_autos(const TrainerValues& values,
                                                              const TrainerContext& context) {
  std::map<std::string, std::string, std::less<>> autos;
  for (Fill& fill : fills(values, context)) autos[fill.path] = std::move(fill.json);
  return autos;
}

std::vector<MigrationError> trainer_mismatches(const TrainerValues& values,
                                               const TrainerContext& context,
                                               const HjsonNode& deepspeed, std::string_view file) {
  std::vector<MigrationError> errors;
  for (const Fill& fill : fills(values, context)) {
    const HjsonNode* node = find_path(deepspeed, fill.path);
    if (fill.argument.empty() || node == nullptr || node->kind == Kind::kNull) continue;
    if (node->kind == Kind::kText && node->text == "auto") continue;
    const HjsonDocument wanted = read_hjson("{\"v\": " + fill.json + "}");
    const HjsonNode* argument = wanted.root.find("v");
    if (argument != nullptr && equal(*node, *argument)) continue;
    const std::string place = node->line > 0
                                  ? format_text("{}:{}:{}", file, node->line, node->column)
                                  : std::string(file);
    errors.push_back(
        {fill.path,
         format_text("{}: {}: {} here, and {} is {}; the Trainer refuses two values: make them "
                     "equal, or write \"auto\"",
                     place, fill.path, to_json(*node), fill.argument, fill.json)});
  }
  return errors;
}

}  // namespace sluice::migrate
