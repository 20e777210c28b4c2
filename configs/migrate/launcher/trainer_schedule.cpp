#include "configs/migrate/launcher/trainer_schedule.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/format.hpp"
#include "configs/migrate/launcher/trainer_steps.hpp"
#include "configs/migrate/launcher/yaml_values.hpp"
#include "configs/value.hpp"

namespace sluice::migrate {
namespace {

using enum KeyClass;

constexpr std::array<std::string_view, 8> kAdamW{
    "adamw_torch",      "adamw_torch_fused", "adamw_torch_xla", "adamw_torch_npu_fused",
    "adamw_apex_fused", "adamw_hf",          "paged_adamw",     "paged_adamw_32bit"};

class Part {
 public:
  explicit Part(const TrainerValues& values) : values_(values) {}

  void set(std::string_view argument, std::string_view key, std::string value,
           std::string origin = {}) {
    if (origin.empty()) {
      origin = format_text("{} {}", argument, value);
      if (values_.find(argument) == nullptr) origin += ", the Trainer's default";
    }
    part_.settings.push_back(
        {std::string(argument), {std::string(key), std::move(value)}, std::move(origin)});
  }
  void stop(std::string note) {
    part_.kind = kRefused;
    part_.stops = true;
    part_.note = std::move(note);
  }
  void change(std::string note) {
    part_.kind = kChanged;
    part_.note = std::move(note);
  }
  TrainerPart take() { return std::move(part_); }
  [[nodiscard]] const TrainerValues& values() const { return values_; }

 private:
  const TrainerValues& values_;
  TrainerPart part_;
};

bool contains(const auto& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

void set_moments(Part& part, std::string_view betas_from) {
  const TrainerValues& values = part.values();
  const std::string betas =
      format_text("[{}, {}]", values.json("adam_beta1"), values.json("adam_beta2"));
  const bool given = values.find("adam_beta1") != nullptr || values.find("adam_beta2") != nullptr;
  part.set(betas_from, "optimizer.betas", betas,
           format_text("adam_beta1 and adam_beta2{}", given ? "" : ", the Trainer's defaults"));
}

// lr_scheduler_kwargs: each may be used once; what is left stops the migration.
class ScheduleKeys {
 public:
  explicit ScheduleKeys(const TrainerValues& values) {
    const TrainerArgument* given = values.find("lr_scheduler_kwargs");
    if (given == nullptr) return;
    if (given->value.kind == HjsonNode::Kind::kText) {
      HjsonDocument document = read_hjson(given->value.text);
      if (document.problems.empty()) root_ = std::move(document.root);
    } else {
      root_ = given->value;
    }
  }
  // The value as text, or the fallback.
  std::string take(std::string_view key, std::string_view fallback) {
    const HjsonNode* found = root_.find(key);
    if (found == nullptr || found->kind == HjsonNode::Kind::kNull) return std::string(fallback);
    std::string text = found->text;
    std::erase_if(root_.entries, [key](const HjsonEntry& entry) { return entry.key == key; });
    return text;
  }
  [[nodiscard]] std::string rest() const {
    return root_.entries.empty() ? std::string() : root_.entries[0].key;
  }

 private:
  HjsonNode root_;
};

// 0.1 -> "10%"; nullopt for text that is no share.
std::optional<std::string> share(const std::string& text) {
  const HjsonNode value = typed_word(text);
  if (value.kind != HjsonNode::Kind::kNumber || value.number < 0 || value.number > 1) {
    return std::nullopt;
  }
  // 0.07 x 100 is 7.000000000000001.
  return format_number(std::round(value.number * 1e10) / 1e8) + "%";
}

void set_shape(Part& part, std::string_view shape) {
  part.set("lr_scheduler_type", "schedule.type", std::string(shape),
           format_text("lr_scheduler_type {}", part.values().text("lr_scheduler_type")));
}

void set_min_lr(Part& part, const std::string& value) {
  part.set("lr_scheduler_kwargs", "schedule.min_lr", value,
           format_text("lr_scheduler_kwargs: {}", value));
}

// The lowest rate of cosine_with_min_lr, as a rate or as a share of the highest.
void set_cosine_floor(Part& part, ScheduleKeys& keys) {
  const std::string rate = keys.take("min_lr", "");
  const std::string ratio = keys.take("min_lr_rate", "");
  if (rate.empty() == ratio.empty()) {
    return part.stop("give min_lr or min_lr_rate in lr_scheduler_kwargs, one of them");
  }
  if (!rate.empty()) return set_min_lr(part, rate);
  const auto percent = share(ratio);
  if (!percent) return part.stop("min_lr_rate is a number from 0 to 1; give one");
  set_min_lr(part, *percent);
}

void set_stable(Part& part, ScheduleKeys& keys, std::int64_t steps, std::int64_t warmup) {
  const std::string decay = keys.take("num_decay_steps", "");
  const std::string decay_type = keys.take("decay_type", "cosine");
  const std::string warmup_type = keys.take("warmup_type", "linear");
  const std::string stable = keys.take("num_stable_steps", "");
  const auto floor = share(keys.take("min_lr_ratio", "0"));
  if (decay_type != "linear" || warmup_type != "linear") {
    return part.stop(
        format_text("Sluice's wsd rises and falls in straight lines; warmup_type is "
                    "{}, decay_type {}: set both to linear",
                    warmup_type, decay_type));
  }
  const auto fall = typed_word(decay).integer;
  constexpr std::int64_t kMost = 1'000'000'000;
  if (!fall || *fall < 1 || *fall > kMost || !floor) {
    return part.stop("give num_decay_steps of 1 or more, and min_lr_ratio from 0 to 1");
  }
  part.set("lr_scheduler_kwargs", "schedule.wsd_decay", decay, "num_decay_steps " + decay);
  if (*floor != "0%") {
    set_min_lr(part, *floor);
    part.set("lr_scheduler_kwargs", "schedule.warmup_min_lr", *floor, "min_lr_ratio");
  }
  if (stable.empty()) return;
  const auto kept = typed_word(stable).integer;
  if (!kept || *kept < 0 || *kept > kMost)
    return part.stop("num_stable_steps is a count of steps; give one");
  const std::int64_t end = warmup + *kept + *fall;
  if (end != steps) {
    part.set("lr_scheduler_kwargs", "schedule.decay_steps", std::to_string(end),
             "warmup_steps + num_stable_steps + num_decay_steps");
  }
}

// Shapes with keys of their own. False for a type that Sluice lacks.
bool set_type(Part& part, ScheduleKeys& keys, std::int64_t steps, std::int64_t warmup) {
  const std::string type = part.values().text("lr_scheduler_type");
  if (type == "linear") {
    set_shape(part, "linear");
  } else if (type == "constant" || type == "constant_with_warmup") {
    set_shape(part, "constant");
  } else if (type == "cosine" || type.starts_with("cosine_with_min_lr") ||
             type == "cosine_warmup_with_min_lr") {
    set_shape(part, "cosine");
    if (typed_word(keys.take("num_cycles", "0.5")).number != 0.5) {
      part.stop("Sluice's cosine falls once: num_cycles 0.5; take num_cycles away");
    }
    if (type != "cosine") set_cosine_floor(part, keys);
    if (type == "cosine_warmup_with_min_lr" && !keys.take("warmup_lr_rate", "").empty()) {
      part.stop("Sluice has no warmup_lr_rate; take it away");
    }
  } else if (type == "polynomial") {
    set_shape(part, "linear");
    if (typed_word(keys.take("power", "1")).number != 1) {
      part.stop("Sluice's fall is a straight line: power 1; take power away");
    }
    set_min_lr(part, keys.take("lr_end", "1e-7"));
  } else if (type == "warmup_stable_decay") {
    set_shape(part, "wsd");
    set_stable(part, keys, steps, warmup);
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::string trainer_warmup_share(const TrainerValues& values, std::int64_t steps) {
  if (trainer_warmup(values, steps)) return "";
  const bool by_steps = values.number("warmup_steps") > 0;
  const std::string given = values.json(by_steps ? "warmup_steps" : "warmup_ratio");
  return share(given).value_or(given);
}

TrainerPart trainer_optimizer(const TrainerValues& values) {
  Part part(values);
  const std::string optim = values.text("optim");
  part.set("learning_rate", "optimizer.lr", format_number(values.number("learning_rate")));
  part.set("weight_decay", "optimizer.weight_decay", format_number(values.number("weight_decay")));
  // The Trainer leaves out biases and norms; all other parameters are matrices.
  part.set("weight_decay", "optimizer.decay", "matrices", "the Trainer decays no biases and norms");
  const char* const betas_from =
      values.find("adam_beta1") == nullptr && values.find("adam_beta2") != nullptr ? "adam_beta2"
                                                                                   : "adam_beta1";
  if (contains(kAdamW, optim)) {
    part.set("optim", "optimizer.type", "adamw");
    set_moments(part, betas_from);
    part.set("adam_epsilon", "optimizer.eps", format_number(values.number("adam_epsilon")));
    if (optim == "adamw_hf") {
      part.change("adamw_hf adds eps before the bias correction, adamw here after it");
    }
    if (optim.starts_with("paged_")) {
      part.change("pages move the states to the host there; here offload.optimizer decides");
    }
  } else if (optim == "lion_32bit" || optim == "paged_lion_32bit" || optim == "paged_lion") {
    part.set("optim", "optimizer.type", "lion");
    set_moments(part, betas_from);
  } else if (optim == "sgd") {
    part.set("optim", "optimizer.type", "sgd");
    part.set("optim", "optimizer.momentum", "0", "sgd of the Trainer has no momentum");
  } else {
    part.stop(
        format_text("Sluice has adamw, lion and sgd with fp32 or bf16 states, not {}", optim));
  }
  return part.take();
}

TrainerPart trainer_schedule(const TrainerValues& values, std::int64_t steps) {
  Part part(values);
  ScheduleKeys keys(values);
  const std::string type = values.text("lr_scheduler_type");
  const auto warmup = trainer_warmup(values, steps);
  if (!set_type(part, keys, steps, warmup.value_or(0))) {
    part.stop(format_text("Sluice has no schedule {}; give schedule.type with --set", type));
    return part.take();
  }
  if (!keys.rest().empty()) {
    part.stop(format_text("lr_scheduler_kwargs: {} belongs to no schedule {}; take it away",
                          keys.rest(), type));
  }
  part.set("lr_scheduler_type", "schedule.counting",
           type == "cosine_warmup_with_min_lr" ? "from_one" : "from_zero",
           "the Trainer counts its steps so");
  if (type == "constant") return part.take();
  const char* const from =
      values.find("warmup_steps") == nullptr && values.find("warmup_ratio") != nullptr
          ? "warmup_ratio"
          : "warmup_steps";
  const std::string number = warmup ? std::to_string(*warmup) : trainer_warmup_share(values, steps);
  part.set(from, "schedule.warmup_steps", number, format_text("{} {}", from, values.json(from)));
  return part.take();
}

}  // namespace sluice::migrate
