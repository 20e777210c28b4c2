// Rows of the monitors, profilers, timers and autotuning.
#include "configs/migrate/deepspeed/key_table.hpp"

namespace sluice::migrate {

using enum KeyType;
using enum KeyClass;

// clang-format off
static void add_monitor_keys(KeyTable& t) {
  constexpr std::string_view kName = "output.dir names a run";
  t.section("tensorboard", Unknown::kRaises, kMapped, "output.tensorboard");
  t.key("enabled", kBool, "false", kMapped, "output.tensorboard");
  t.key("output_path", kText, "\"\"", kChanged,
        "output.dir: Sluice writes all files of a run into one directory");
  t.key("job_name", kText, "\"DeepSpeedJobName\"", kNotNeeded, kName);
  t.section("csv_monitor", Unknown::kRaises, kNotNeeded, "metrics.jsonl has every step");
  t.key("enabled", kBool, "false", kNotNeeded, "metrics.jsonl has every step");
  t.key("output_path", kText, "\"\"", kNotNeeded, kName);
  t.key("job_name", kText, "\"DeepSpeedJobName\"", kNotNeeded, kName);

  constexpr std::string_view kService = "Sluice sends nothing to a service; metrics.jsonl has all";
  t.section("wandb", Unknown::kRaises, kNotNeeded, kService);
  t.key("enabled", kBool, "false", kNotNeeded, kService);
  t.key("group", kText, "null", kNotNeeded, kService);
  t.key("team", kText, "null", kNotNeeded, kService);
  t.key("project", kText, "\"deepspeed\"", kNotNeeded, kService);
  t.section("comet", Unknown::kRaises, kNotNeeded, kService).since({0, 14, 3});
  t.key("enabled", kBool, "false", kNotNeeded, kService);
  t.key("samples_log_interval", kInt, "100", kNotNeeded, kService);
  for (const std::string_view name :
       {"project", "workspace", "api_key", "experiment_name", "experiment_key", "mode"}) {
    t.key(name, kText, "null", kNotNeeded, kService);
  }
  t.key("online", kBool, "null", kNotNeeded, kService);
}

static void add_profiler_keys(KeyTable& t) {
  constexpr std::string_view kFlops = "metrics.jsonl has tflops and mfu of every step";
  t.section("flops_profiler", Unknown::kIgnores, kNotNeeded, kFlops);
  t.key("enabled", kBool, "false", kNotNeeded, kFlops).checked();
  t.key("recompute_fwd_factor", kFloat, "0.0", kNotNeeded, kFlops);
  t.key("profile_step", kInt, "1", kNotNeeded, kFlops);
  t.key("module_depth", kInt, "-1", kNotNeeded, kFlops);
  t.key("top_modules", kInt, "1", kNotNeeded, kFlops);
  t.key("detailed", kBool, "true", kNotNeeded, kFlops);
  t.key("output_file", kText, "null", kNotNeeded, kFlops);

  constexpr std::string_view kTrace = "output.trace has every exchange with bytes and times";
  t.section("comms_logger", Unknown::kRaises, kNotNeeded, kTrace);
  t.key("enabled", kBool, "false", kNotNeeded, kTrace);
  t.key("prof_all", kBool, "true", kNotNeeded, kTrace);
  t.key("prof_ops", kList, "[]", kNotNeeded, kTrace);
  t.key("verbose", kBool, "false", kNotNeeded, kTrace);
  t.key("debug", kBool, "false", kNotNeeded, kTrace);

  constexpr std::string_view kSpeed = "metrics.jsonl has tokens_per_s of every step";
  t.section("timers", Unknown::kIgnores, kNotNeeded, kSpeed).since({0, 14, 1});
  t.section("timers.throughput", Unknown::kRaises, kNotNeeded, kSpeed);
  t.key("enabled", kBool, "true", kNotNeeded, kSpeed);
  t.key("synchronized", kBool, "true", kNotNeeded, kSpeed);
}

static void add_autotuning_keys(KeyTable& t) {
  constexpr std::string_view kWhy = "sluice plan --suggest searches without running jobs";
  t.section("autotuning", Unknown::kIgnores, kNotNeeded, kWhy);
  t.key("enabled", kBool, "false", kNotNeeded, kWhy);
  t.key("fast", kBool, "true", kNotNeeded, kWhy);
  t.key("results_dir", kText, "\"autotuning_results\"", kNotNeeded, kWhy).checked();
  t.key("exps_dir", kText, "\"autotuning_exps\"", kNotNeeded, kWhy).checked();
  t.key("overwrite", kBool, "true", kNotNeeded, kWhy);
  t.key("start_profile_step", kInt, "3", kNotNeeded, kWhy);
  t.key("end_profile_step", kInt, "5", kNotNeeded, kWhy);
  t.key("metric", kText, "\"throughput\"", kNotNeeded, kWhy);
  t.key("metric_path", kText, "null", kNotNeeded, kWhy);
  t.key("tuner_type", kText, "\"gridsearch\"", kNotNeeded, kWhy);
  t.key("tuner_early_stopping", kInt, "5", kNotNeeded, kWhy);
  t.key("tuner_num_trials", kInt, "50", kNotNeeded, kWhy);
  t.key("arg_mappings", kObject, "null", kNotNeeded, kWhy);
  t.key("max_train_batch_size", kInt, "null", kNotNeeded, kWhy);
  t.key("min_train_batch_size", kInt, "1", kNotNeeded, kWhy);
  t.key("max_train_micro_batch_size_per_gpu", kInt, "1024", kNotNeeded, kWhy);
  t.key("min_train_micro_batch_size_per_gpu", kInt, "1", kNotNeeded, kWhy);
  t.key("num_tuning_micro_batch_sizes", kInt, "3", kNotNeeded, kWhy);
  t.key("mp_size", kInt, "1", kNotNeeded, kWhy);
  t.key("model_info_path", kText, "null", kNotNeeded, kWhy);
  t.section("autotuning.model_info", Unknown::kIgnores, kNotNeeded, kWhy).nullable();
  t.key("profile", kBool, "false", kNotNeeded, kWhy);
  for (const std::string_view name : {"num_params", "hidden_size", "num_layers"}) {
    t.key(name, kInt, "null", kNotNeeded, kWhy);
  }
}
// clang-format on

void add_observe_keys(KeyTable& table) {
  add_monitor_keys(table);
  add_profiler_keys(table);
  add_autotuning_keys(table);
}

}  // namespace sluice::migrate
