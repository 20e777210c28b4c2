#include "configs/idle_keys.hpp"

#include <array>
#include <string>
#include <string_view>

#include "configs/schema.hpp"

namespace sluice {
namespace {

class IdleKeys {
 public:
  explicit IdleKeys(LoadedConfig& config) : config_(config), run_(config.run) {}

  void settle_all() {
    evaluation();
    learning_rate();
    optimizer_keys();
    optimizer_tier();
    mesh();
    keys_of_the_schema();
  }

 private:
  void note(std::string_view key, const std::string& why) {
    config_.notes.push_back(config_.place(key) + ": " + std::string(key) + ": no effect: " + why);
  }
  // The key's default holds, and the key counts as not given.
  void drop(std::string_view key, const std::string& why) {
    note(key, why);
    const Key* const known = find_key(key);
    known->set(run_, known->get(RunConfig{}));
    const auto origin = config_.origins.find(key);
    if (origin != config_.origins.end()) config_.origins.erase(origin);
  }

  void drop_given(std::string_view key, const std::string& why) {
    if (config_.given(key)) drop(key, why);
  }

  // A resolved configuration gives every key, most with its default.
  void drop_changed(std::string_view key, const std::string& why) {
    const Key* const known = find_key(key);
    if (known->get(run_) != known->get(RunConfig{})) drop(key, why);
  }

  void evaluation() {
    const DataOptions& data = run_.data;
    if (run_.train.eval_every > 0 && run_.train.eval_steps > 0 && data.valid.empty() &&
        data.valid_sets.empty() && data.split.size() > 1 && data.split[1] == 0) {
      note("train.eval_every",
           "there is nothing to evaluate on: data.valid is empty and the validation share of "
           "data.split is 0");
    }
  }

  void learning_rate() {
    const ScheduleOptions& schedule = run_.schedule;
    const std::int64_t steps = run_.train.steps;
    const std::int64_t warmup = schedule.warmup_of(steps);
    const bool ends_with_run =
        schedule.type == ScheduleType::kConstant || schedule.decay_steps.is_auto();
    if (ends_with_run && warmup > steps &&
        config_.overridden("schedule.warmup_steps", "train.steps")) {
      config_.notes.push_back(config_.place("schedule.warmup_steps") +
                              ": schedule.warmup_steps: the run ends in its warm-up, after " +
                              std::to_string(steps) + " of " + std::to_string(warmup) +
                              " steps; a share such as 5% follows train.steps");
    }
  }

  void optimizer_keys() {
    const OptimizerKeys& keys = keys_of(run_.optimizer.type);
    const std::string why = "optimizer.type is " + std::string(keys.name);
    const bool reads_betas = keys.betas != std::array<double, 2>{};
    if (!reads_betas) drop_given("optimizer.betas", why);
    if (reads_betas && !config_.given("optimizer.betas")) run_.optimizer.betas = keys.betas;
    if (!keys.eps) drop_given("optimizer.eps", why);
    if (!keys.momentum) drop_given("optimizer.momentum", why);
    if (!keys.decoupled) drop_changed("optimizer.decoupled", why);
    if (!keys.bias_correction) drop_changed("optimizer.bias_correction", why);
  }

  void optimizer_tier() {
    OffloadOptions& offload = run_.offload;
    if (offload.optimizer == Tier::kDevice) {
      const std::string why = "offload.optimizer is device";
      if (offload.speculate != Speculation::kNever) drop("offload.speculate", why);
      if (offload.device_fraction != 0) drop("offload.device_fraction", why);
    } else if (offload.gradients == Tier::kDevice && offload.gradients_dtype != DType::kFloat32) {
      drop("offload.gradients_dtype",
           "offload.gradients is device, and offload.optimizer is not: the host copies fp32");
    }
    if (offload.optimizer == Tier::kNvme) return;
    if (offload.host_fraction != 0) {
      drop("offload.host_fraction", "offload.optimizer is not nvme");
    }
    if (offload.image) {
      drop("offload.image", "offload.optimizer is not nvme, so no step is committed there");
    }
  }

  void mesh() {
    ParallelOptions& mesh = run_.parallel;
    if (mesh.sequence && mesh.tensor == 1) {
      drop("parallel.sequence", "parallel.tensor is 1, and its ranks share the sequence");
    }
    if (mesh.pipeline > 1) return;
    const std::string why = "parallel.pipeline is 1";
    if (mesh.schedule != PipelineSchedule::k1f1b) drop("parallel.schedule", why);
    if (mesh.virtual_stages > 1) drop("parallel.virtual_stages", why);
    if (!mesh.stage_layers.empty()) drop("parallel.stage_layers", why);
  }

  // All other keys, by the condition that the schema has for them. Their values stay: a search
  // (plan --suggest) may plan a step in which they have an effect.
  void keys_of_the_schema() {
    const RunConfig plain;
    for (const Section& section : schema()) {
      for (const Key& key : section.keys) {
        if (!key.has_effect || key.has_effect(run_) || !config_.given(key.path())) continue;
        if (key.get(run_) == key.get(plain)) continue;
        note(key.path(), "only where " + std::string(key.when));
      }
    }
  }

  LoadedConfig& config_;
  RunConfig& run_;
};

}  // namespace

void settle_idle_keys(LoadedConfig& config) { IdleKeys(config).settle_all(); }

}  // namespace sluice
