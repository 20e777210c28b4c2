#include "runtime/run/run_settings.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <utility>

#include "runtime/run/matmul_choice.hpp"

namespace sluice {
namespace {

std::string text_of(double value) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), error == std::errc() ? end : text.data()};
}

std::string text_of(bool value) { return value ? "true" : "false"; }

// In an order of its own, on which the parameters that the patterns name do not depend.
std::string text_of(std::vector<std::string> patterns) {
  std::sort(patterns.begin(), patterns.end());
  std::string text;
  for (const std::string& pattern : patterns) text += (text.empty() ? "" : ", ") + pattern;
  return "[" + text + "]";
}

template <class Enum, std::size_t n>
std::string text_of(Enum value, const std::array<std::string_view, n>& names) {
  return std::string(names.at(static_cast<std::size_t>(value)));
}

constexpr std::string_view kSetting = "setting.";
constexpr const char* kGlobalBatch = "train.global_batch";
constexpr const char* kMatmul = "train.matmul";
constexpr const char* kOptimizer = "optimizer.type";

class Settings {
 public:
  void add(std::string_view key, std::string_view value) {
    map_.emplace(std::string(kSetting).append(key), value);
  }
  [[nodiscard]] TextMap take() { return std::move(map_); }

 private:
  TextMap map_;
};

void add_model(const ModelOptions& given, Settings& out) {
  const ModelOptions model = with_defaults(given);
  out.add("model.type", text_of(model.type, std::array<std::string_view, 4>{"gpt2", "llama",
                                                                            "mistral", "qwen2"}));
  out.add("model.heads", std::to_string(model.heads));
  out.add("model.kv_heads", std::to_string(model.kv_heads));
  out.add("model.seq", std::to_string(model.seq));
  out.add("model.dropout", text_of(model.dropout));
  out.add("model.norm_eps", text_of(model.norm_eps));
  out.add("model.explicit_units", text_of(model.explicit_units));
  if (model.type == ModelType::kGpt2) return;
  out.add("model.sliding_window", std::to_string(model.sliding_window));
  out.add("model.rope_theta", text_of(model.rope_theta));
  out.add("model.rope_scaling",
          text_of(model.rope_scaling, std::array<std::string_view, 2>{"none", "llama3"}));
  if (model.rope_scaling == RopeScaling::kNone) return;
  out.add("model.rope_factor", text_of(model.rope_factor));
  out.add("model.rope_low_freq_factor", text_of(model.rope_low_freq_factor));
  out.add("model.rope_high_freq_factor", text_of(model.rope_high_freq_factor));
  out.add("model.rope_original_seq", std::to_string(model.rope_original_seq));
}

void add_schedule(const EngineOptions& options, Settings& out) {
  const ScheduleOptions& schedule = options.schedule;
  out.add("schedule.type", text_of(schedule.type, std::array<std::string_view, 4>{
                                                      "constant", "linear", "cosine", "wsd"}));
  out.add("schedule.counting",
          text_of(schedule.counting,
                  std::array<std::string_view, 3>{"from_one", "from_zero", "deepspeed"}));
  const double lr = options.optimizer.lr;
  const std::int64_t warmup = schedule.warmup_of(options.train.steps);
  out.add("schedule.warmup_steps", std::to_string(warmup));
  if (warmup > 0) {
    out.add("schedule.warmup",
            text_of(schedule.warmup, std::array<std::string_view, 2>{"linear", "log"}));
    out.add("schedule.warmup_min_lr", text_of(schedule.warmup_min_lr.of(lr)));
  }
  if (schedule.type == ScheduleType::kConstant) return;
  out.add("schedule.min_lr", text_of(schedule.min_lr.of(lr)));
  const std::int64_t end = schedule.decay_steps.is_auto()
                               ? options.train.steps
                               : schedule.decay_steps.of(options.train.steps);
  out.add("schedule.decay_steps", std::to_string(end));
  if (schedule.type == ScheduleType::kWsd) {
    out.add("schedule.wsd_decay", std::to_string(schedule.wsd_decay.of(options.train.steps)));
  }
}

void add_training(const EngineOptions& options, Settings& out) {
  const TrainOptions& train = options.train;
  out.add("train.micro_batch", std::to_string(train.micro_batch));
  out.add("train.dtype", name_of(train.dtype));
  out.add(kMatmul, name_of(options.model.matmul));
  out.add("train.seed", std::to_string(train.seed));
  out.add("train.clip", text_of(train.clip));
  out.add("train.freeze", text_of(options.model.freeze));
  const OptimizerOptions& optimizer = options.optimizer;
  const OptimizerKeys& keys = keys_of(optimizer.type);
  out.add(kOptimizer, std::string(keys.name));
  out.add("optimizer.lr", text_of(optimizer.lr));
  if (keys.betas != std::array<double, 2>{}) {
    out.add("optimizer.betas",
            "[" + text_of(optimizer.betas[0]) + ", " + text_of(optimizer.betas[1]) + "]");
  }
  if (keys.momentum) out.add("optimizer.momentum", text_of(optimizer.momentum));
  if (keys.eps) out.add("optimizer.eps", text_of(optimizer.eps));
  if (keys.decoupled) out.add("optimizer.decoupled", text_of(optimizer.decoupled));
  if (keys.bias_correction) {
    out.add("optimizer.bias_correction", text_of(optimizer.bias_correction));
  }
  out.add("optimizer.weight_decay", text_of(optimizer.weight_decay));
  out.add("optimizer.decay",
          text_of(optimizer.decay, std::array<std::string_view, 2>{"matrices", "all"}));
  out.add("offload.states_dtype", name_of(options.offload.states_dtype));
  const OffloadOptions& offload = options.offload;
  std::string gradients(name_of(offload.gradients_dtype));
  if (offload.gradients == Tier::kDevice && offload.gradients_dtype != DType::kFloat32) {
    gradients += " of blocks";
  }
  out.add("offload.gradients_dtype", gradients);
  if (options.dp > 1) out.add("zero.reduce_dtype", name_of(options.zero.reduce_dtype));
  out.add("data-parallel ranks", std::to_string(options.dp));
  out.add("parallel.tensor", std::to_string(options.part.tensor));
  out.add("parallel.pipeline", std::to_string(options.part.stages));
}

void add_loss_scale(const LossScaleOptions& scale, Settings& out) {
  out.add("loss_scale.static", scale.fixed > 0 ? text_of(scale.fixed) : "none");
  if (scale.fixed > 0) return;
  const bool follows = scale.first_window == 0;
  out.add("loss_scale.window", std::to_string(scale.window));
  out.add("loss_scale.first_window", std::to_string(follows ? scale.window : scale.first_window));
  out.add("loss_scale.hysteresis", std::to_string(scale.hysteresis));
  out.add("loss_scale.consecutive_hysteresis", text_of(scale.consecutive_hysteresis));
  out.add("loss_scale.min", text_of(scale.min));
}

std::string moved_position(const RunState& saved, const std::string& now) {
  std::int64_t batch = 0;
  std::from_chars(now.data(), now.data() + now.size(), batch);
  const std::int64_t next = saved.step * batch;
  return "; the order of samples is a function of step and global batch: " +
         std::to_string(std::abs(next - saved.samples)) + " samples " +
         (next > saved.samples ? "are left out" : "come again");
}

}  // namespace

TextMap settings_of(const EngineOptions& options, std::int64_t global_batch) {
  Settings settings;
  add_model(options.model, settings);
  add_training(options, settings);
  add_schedule(options, settings);
  settings.add(kGlobalBatch, std::to_string(global_batch));
  if (options.train.dtype == DType::kFloat16) add_loss_scale(options.loss_scale, settings);
  return settings.take();
}

std::optional<MatmulType> matmul_of(const RunState& saved) {
  const auto found = saved.more.find(std::string(kSetting).append(kMatmul));
  if (found == saved.more.end()) return std::nullopt;
  for (const MatmulType type : {MatmulType::kNative, MatmulType::kFp32}) {
    if (found->second == name_of(type)) return type;
  }
  return std::nullopt;
}

std::string optimizer_of(const TextMap& settings) {
  const auto found = settings.find(std::string(kSetting).append(kOptimizer));
  return found == settings.end() ? std::string(keys_of(OptimizerType::kAdamW).name) : found->second;
}

std::vector<std::string> model_changes(const RunState& saved, const TextMap& now) {
  std::vector<std::string> changes;
  for (const char* name : {"model.type", "model.heads", "model.kv_heads", "model.norm_eps"}) {
    const std::string key = std::string(kSetting) + name;
    const auto before = saved.more.find(key);
    const auto after = now.find(key);
    if (before == saved.more.end() || after == now.end() || before->second == after->second) {
      continue;
    }
    changes.push_back(std::string(name) + " is " + after->second + " and " + before->second +
                      " there");
  }
  return changes;
}

std::vector<std::string> changes_between(const RunState& saved, const TextMap& now) {
  std::vector<std::string> changes;
  for (const auto& [key, value] : now) {
    const auto before = saved.more.find(key);
    if (before == saved.more.end() || before->second == value) continue;
    if (!key.starts_with(kSetting)) continue;
    const std::string name = key.substr(kSetting.size());
    changes.push_back(name + ": " + before->second + " -> " + value +
                      (name == kGlobalBatch ? moved_position(saved, value) : ""));
  }
  const auto data = now.find(kDataKey);
  const auto before = saved.more.find(kDataKey);
  if (data != now.end() && before != saved.more.end() && data->second != before->second) {
    changes.emplace_back(
        "data: other tokens than those trained on so far (files, tokenizer or data.split have "
        "changed); the run goes on with these, as if they had been there from the start");
  }
  return changes;
}

}  // namespace sluice
