// Each argument of the Trainer, and its settings.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/counted.hpp"
#include "base/format.hpp"
#include "configs/migrate/launcher/trainer_schedule.hpp"
#include "configs/migrate/launcher/trainer_steps.hpp"
#include "configs/migrate/launcher/training_arguments.hpp"
#include "configs/value.hpp"

namespace sluice::migrate {
namespace {

using enum KeyClass;
using Kind = HjsonNode::Kind;

std::string fills(std::string_view path) { return "fills \"auto\" at " + std::string(path); }

class TrainerMapping {
 public:
  TrainerMapping(const TrainerValues& values, const TrainerContext& context, MigrationDraft& draft)
      : values_(values), context_(context), draft_(draft) {}

  void map() {
    map_steps();
    map_batch();
    map_optimizer();
    map_schedule();
    map_logging();
    map_evaluation();
    map_checkpoints();
    map_rest();
    add_keys();
    for (TrainerSetting& setting : settings_) {
      const std::string from = TrainerValues::path(setting.argument);
      draft_.set(from, setting.setting.key, std::move(setting.setting.value),
                 std::move(setting.origin));
    }
  }

 private:
  struct Verdict {
    KeyClass kind;
    std::string note;
    bool stops = false;
  };

  void decide(std::string_view name, KeyClass kind, std::string_view note, bool stops = false) {
    verdicts_.insert_or_assign(std::string(name), Verdict{kind, std::string(note), stops});
  }
  void set(std::string_view argument, std::string_view key, std::string value) {
    std::string origin = format_text("{} {}", argument, values_.json(argument));
    if (values_.find(argument) == nullptr) origin += ", the Trainer's default";
    set(argument, key, std::move(value), std::move(origin));
  }
  void set(std::string_view argument, std::string_view key, std::string value, std::string origin) {
    settings_.push_back(
        {std::string(argument), {std::string(key), std::move(value)}, std::move(origin)});
  }
  void take(std::string_view name, TrainerPart part) {
    if (!part.note.empty()) decide(name, part.kind, part.note, part.stops);
    if (part.stops) return;
    settings_.insert(settings_.end(), part.settings.begin(), part.settings.end());
  }
  void map_steps() {
    const std::int64_t steps = values_.count("max_steps");
    if (steps > 0) {
      set("max_steps", "train.steps", std::to_string(steps));
      return decide("num_train_epochs", kIgnored, "max_steps comes first");
    }
    decide("max_steps", kNotNeeded, "-1: num_train_epochs decides");
    decide("num_train_epochs", kChanged,
           "Sluice counts steps: passes over the data x samples / global batch");
    if (context_.steps > 0) return;
    draft_.missing(TrainerValues::path("num_train_epochs"),
                   format_text("--set train.steps=N: {} epochs are N = epochs x samples / global "
                               "batch, and the number of samples is not known here",
                               values_.json("num_train_epochs")));
  }
  void map_batch() {
    if (context_.has_deepspeed) {
      decide("per_device_train_batch_size", kMapped, fills("train_micro_batch_size_per_gpu"));
      decide("gradient_accumulation_steps", kMapped, fills("gradient_accumulation_steps"));
      return decide("max_grad_norm", kMapped, fills("gradient_clipping"));
    }
    const std::int64_t micro = values_.count("per_device_train_batch_size");
    const std::int64_t accumulation = values_.count("gradient_accumulation_steps");
    constexpr std::int64_t kMost = std::int64_t{1} << 20;
    set("per_device_train_batch_size", "train.micro_batch", std::to_string(micro));
    if (context_.world == 0) {
      draft_.missing(TrainerValues::path("per_device_train_batch_size"),
                     "--world N: the global batch is a product with the ranks");
    } else if (micro <= kMost && accumulation <= kMost && context_.world <= kMost) {
      set("gradient_accumulation_steps", "train.global_batch",
          std::to_string(micro * accumulation * context_.world),
          format_text("{} x {} x {}", micro, accumulation, counted(context_.world, "rank")));
    }
    set("max_grad_norm", "train.clip", format_number(values_.number("max_grad_norm")));
    const bool bf16 = values_.flag("bf16");
    const bool fp16 = values_.flag("fp16");
    set(fp16 ? "fp16" : "bf16", "train.dtype", bf16 ? "bf16" : (fp16 ? "fp16" : "fp32"));
    const char* const autocast =
        "autocast multiplies fp32 weights in 16 bit; here weights of 16 bit have fp32 masters";
    if (bf16) decide("bf16", kChanged, autocast);
    if (fp16) decide("fp16", kChanged, autocast);
    for (const char* const name : {"bf16_full_eval", "fp16_full_eval"}) {
      decide(name, kNotNeeded, "Sluice evaluates with the weights of training");
    }
  }
  void map_optimizer() {
    if (!context_.has_optimizer) return take("optim", trainer_optimizer(values_));
    decide("optim", kIgnored, "DeepSpeed's optimizer section comes first");
    decide("learning_rate", kMapped, fills("optimizer.params.lr"));
    decide("weight_decay", kMapped, fills("optimizer.params.weight_decay"));
    decide("adam_beta1", kMapped, fills("optimizer.params.betas"));
    decide("adam_beta2", kMapped, fills("optimizer.params.betas"));
    decide("adam_epsilon", kMapped, fills("optimizer.params.eps"));
  }
  void map_schedule() {
    if (context_.has_scheduler) {
      decide("lr_scheduler_type", kIgnored, "DeepSpeed's scheduler section comes first");
      decide("lr_scheduler_kwargs", kIgnored, "DeepSpeed's scheduler section comes first");
      const bool by_steps = values_.number("warmup_steps") > 0;
      const bool by_ratio = !by_steps && values_.number("warmup_ratio") > 0;
      const std::string filled = fills("scheduler.params.warmup_num_steps");
      decide("warmup_steps", by_ratio ? kNotNeeded : kMapped,
             by_ratio ? "0: warmup_ratio decides" : filled);
      return decide("warmup_ratio", by_steps ? kIgnored : kMapped,
                    by_steps ? "warmup_steps comes first" : filled);
    }
    take("lr_scheduler_type", trainer_schedule(values_, trainer_steps(values_, context_)));
    if (values_.text("lr_scheduler_type") == "constant") {
      decide("warmup_steps", kIgnored, "lr_scheduler_type constant has no warm-up");
      decide("warmup_ratio", kIgnored, "lr_scheduler_type constant has no warm-up");
    } else if (values_.number("warmup_steps") > 0) {
      decide("warmup_ratio", kIgnored, "warmup_steps comes first");
    }
  }
  // A number of steps, of which a value below 1 is a share; nullopt if the steps are not known.
  [[nodiscard]] std::optional<std::int64_t> interval(std::string_view name) const {
    const double value = values_.number(name);
    if (value >= 1) return static_cast<std::int64_t>(std::min(value, 1e15));
    const std::int64_t steps = trainer_steps(values_, context_);
    if (!(value > 0) || steps <= 0) return std::nullopt;
    return static_cast<std::int64_t>(std::ceil(value * static_cast<double>(steps)));
  }
  void map_interval(std::string_view strategy, std::string_view name, std::string_view key) {
    const std::string when = values_.text(strategy);
    if (when == "steps") {
      if (const auto steps = interval(name)) return set(name, key, std::to_string(*steps));
      return decide(name, kChanged,
                    format_text("a share of steps that are not known; give {} with --set", key));
    }
    const std::string note =
        when == "no" ? format_text("{} no: the Trainer does not read it", strategy)
                     : format_text("{} is {}: the Trainer does not read it", strategy, when);
    decide(name, kIgnored, note);
    if (when == "no") return;
    decide(
        strategy, kChanged,
        format_text("{} there, steps here: Sluice knows no epochs; give {} with --set", when, key));
  }
  void map_logging() { map_interval("logging_strategy", "logging_steps", "train.log_every"); }
  void map_evaluation() {
    const std::string when = values_.text("eval_strategy");
    const bool follows = values_.find("eval_steps") == nullptr || values_.number("eval_steps") == 0;
    if (when == "steps" && follows) {
      if (const auto steps = interval("logging_steps")) {
        set("eval_strategy", "train.eval_every", std::to_string(*steps), "logging_steps");
      }
    } else {
      map_interval("eval_strategy", "eval_steps", "train.eval_every");
    }
    if (when == "no") return set("eval_strategy", "train.eval_steps", "0");
    if (when == "epoch") return;
    decide("eval_strategy", kChanged,
           "the Trainer evaluates the whole data set, Sluice train.eval_steps global batches");
  }
  void map_checkpoints() {
    map_interval("save_strategy", "save_steps", "checkpoint.every");
    if (values_.text("save_strategy") == "no") set("save_strategy", "checkpoint.every", "0");
    const std::int64_t keep = std::max<std::int64_t>(values_.count("save_total_limit"), 0);
    set("save_total_limit", "checkpoint.keep", std::to_string(keep),
        keep == 0 ? "the Trainer keeps all checkpoints" : format_text("save_total_limit {}", keep));
    if (!values_.text("resume_from_checkpoint").empty()) {
      decide(
          "resume_from_checkpoint", kChanged,
          "import the checkpoint with 'sluice checkpoint import', then start with --resume auto");
    }
  }
  void map_rest() {
    set("seed", "train.seed", values_.json("seed"));
    if (const std::string dir = values_.text("output_dir"); !dir.empty()) {
      // The Trainer expands ~.
      set("output_dir", "output.dir",
          dir.starts_with("~/") ? "\"${HOME}" + yaml_text(dir.substr(1)).substr(1)
                                : yaml_text(dir));
    }
    const bool recomputes =
        values_.flag("gradient_checkpointing") || values_.flag("activation_checkpointing");
    if (recomputes) {
      set(values_.flag("gradient_checkpointing") ? "gradient_checkpointing"
                                                 : "activation_checkpointing",
          "recompute.mode", "full");
    }
    const std::string reports = " " + values_.text("report_to") + " ";
    const bool all = reports == " all ";
    if (all || reports.find(" tensorboard ") != std::string::npos) {
      set("report_to", "output.tensorboard", "true");
    }
    if (reports != " tensorboard " && reports != " none " && reports != "  ") {
      decide(
          "report_to", kChanged,
          "Sluice writes metrics.jsonl and event files of TensorBoard, and reports to no service");
    }
  }
  // Refused arguments stop unless they have the default or nothing.
  [[nodiscard]] static bool is_default(const TrainerArgument& argument) {
    const HjsonNode& value = argument.value;
    if (value.kind == Kind::kNull || to_json(value) == argument.key->fallback) return true;
    if (value.kind == Kind::kText || value.kind == Kind::kBool) {
      return value.kind == Kind::kText ? value.text.empty() : !value.boolean;
    }
    const bool empty = value.items.empty() && value.entries.empty();
    if (value.kind != Kind::kNumber) return empty;
    return argument.key->fallback == "0.0" && value.number == 0;
  }
  void add_keys() {
    for (const TrainerArgument& argument : values_.given) add_key(argument);
    // Defaults that decide on the result.
    for (const char* const name :
         {"learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "optim",
          "lr_scheduler_type", "warmup_steps", "max_grad_norm", "per_device_train_batch_size",
          "gradient_accumulation_steps", "num_train_epochs", "seed", "logging_steps", "save_steps",
          "save_total_limit", "eval_strategy"}) {
      if (values_.find(name) == nullptr) add_default(name);
    }
  }
  void add_key(const TrainerArgument& argument) {
    MigratedKey key{.path = argument.path(),
                    .place = {0, argument.place.line == 0 ? argument.place.column : 0},
                    .value = to_json(argument.value),
                    .kind = kIgnored,
                    .to = {},
                    .note = "an argument of your script, not of the Trainer"};
    if (argument.key != nullptr) {
      const bool plain = is_default(argument);
      key.kind = argument.key->kind;
      key.note = argument.key->note;
      key.stops = key.kind == kRefused && !plain;
      if (key.kind == kChanged && plain) {
        key.kind = kNotNeeded;
        key.note = "the default";
      }
      if (const auto found = verdicts_.find(argument.name); found != verdicts_.end()) {
        key.kind = found->second.kind;
        key.note = found->second.note;
        key.stops = found->second.stops;
      }
    }
    draft_.add(std::move(key));
  }
  void add_default(std::string_view name) {
    const TrainerKey* key = find_trainer_key(name);
    Verdict verdict{key->kind, std::string(key->note)};
    if (const auto found = verdicts_.find(name); found != verdicts_.end()) verdict = found->second;
    draft_.add({.path = TrainerValues::path(name),
                .place = {},
                .value = values_.json(name),
                .kind = verdict.kind,
                .is_written = false,
                .stops = verdict.stops,
                .to = {},
                .note = verdict.note});
  }

  const TrainerValues& values_;
  const TrainerContext& context_;
  MigrationDraft& draft_;
  std::map<std::string, Verdict, std::less<>> verdicts_;
  std::vector<TrainerSetting> settings_;
};

}  // namespace

void map_trainer(const TrainerValues& values, const TrainerContext& context,
                 MigrationDraft& draft) {
  TrainerMapping(values, context, draft).map();
}

}  // namespace sluice::migrate
