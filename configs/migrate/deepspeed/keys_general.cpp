// Rows of the top level: batch sizes, gradients, communication, output.
#include "configs/migrate/deepspeed/key_table.hpp"

namespace sluice::migrate {

using enum KeyType;
using enum KeyClass;

// clang-format off
static void add_batch_keys(KeyTable& t) {
  t.key("train_batch_size", kInt, "null", kMapped,
        "train.global_batch: samples of one update over all data-parallel ranks")
      .least(1).fills_auto();
  t.key("train_micro_batch_size_per_gpu", kInt, "null", kMapped,
        "train.micro_batch").least(1).fills_auto();
  t.key("gradient_accumulation_steps", kInt, "null", kMapped,
        "train.global_batch = micro batch x accumulation steps x data-parallel ranks")
      .least(1).fills_auto();
  t.key("managed_gradient_accumulation", kBool, "true", kRefused,
        "Sluice always ends an update itself; false leaves the boundary to the caller")
      .since({0, 19, 4});
  t.key("steps_per_print", kInt, "null", kMapped,
        "train.log_every; null in DeepSpeed is no progress line")
      .before({0, 15, 2}, "10");
  t.key("vocabulary_size", kInt, "null", kNotNeeded,
        "DeepSpeed only warns if the size is no multiple of 8").checked();
  t.key("dataloader_drop_last", kBool, "false", kNotNeeded,
        "a step of Sluice always has full batches");
}

static void add_gradient_keys(KeyTable& t) {
  t.key("gradient_clipping", kFloat, "1.0", kMapped,
        "train.clip: the same norm and factor; 0 is off").before({0, 19, 3}, "0.0").least(0)
      .fills_auto();
  t.key("prescale_gradients", kBool, "false", kNotNeeded,
        "Sluice divides the sum of gradients in fp32, so that order does not matter");
  t.key("gradient_predivide_factor", kFloat, "1.0", kNotNeeded,
        "Sluice divides the sum of gradients in fp32, so that order does not matter");
  t.key("gradient_allreduce_op", kChoice, "\"mean\"", kRefused,
        "Sluice averages gradients over data-parallel ranks; a sum changes the step")
      .choices({"mean", "sum"}).any_case().since({0, 19, 6});
  t.key("communication_data_type", kChoice, "null", kChanged,
        "bf16: zero.reduce_dtype; else Sluice reduces in fp32; null in DeepSpeed is the model's dtype")
      .choices({"fp32", "fp16", "bf16"}).any_case();
  t.key("seq_parallel_communication_data_type", kChoice, "\"fp32\"", kNotNeeded,
        "a run with sequence_parallel_size above 1 is not supported")
      .nullable().choices({"fp32", "fp16", "bf16"}).any_case();
  t.key("disable_allgather", kBool, "false", kIgnored,
        "DeepSpeed parses the key and never reads the value");
  t.key("allgather_size", kInt, "5e8", kNotNeeded,
        "read only with the old form zero_optimization: true; Sluice sizes its gathers itself")
      .least(0);
  t.key("zero_allow_untested_optimizer", kBool, "false", kNotNeeded,
        "every optimizer of Sluice runs on every ZeRO stage");
  t.key("zero_force_ds_cpu_optimizer", kBool, "true", kNotNeeded,
        "Sluice has one CPU optimizer");
}

static void add_rank_keys(KeyTable& t) {
  t.key("sequence_parallel_size", kInt, "1", kRefused,
        "Ulysses sequence parallelism; parallel.sequence of Sluice needs parallel.tensor")
      .least(1);
  t.key("data_parallel_size", kInt, "null", kNotNeeded,
        "Sluice computes the data axis from the world and the other axes").least(1);
  t.key("use_data_before_expert_parallelism", kBool, "false", kNotNeeded,
        "the order of expert-parallel ranks; Sluice has no expert parallelism");
}

static void add_output_keys(KeyTable& t) {
  t.key("wall_clock_breakdown", kBool, "false", kNotNeeded,
        "metrics.jsonl always has timers_ms").checked();
  t.key("memory_breakdown", kBool, "false", kNotNeeded,
        "sluice plan prints the memory of every tier");
  t.key("dump_state", kBool, "false", kNotNeeded,
        "output.dir has config.yaml and plan.json of every run");
  t.key("disable_python_gc", kBool, "false", kNotNeeded,
        "Sluice runs no Python").since({0, 19, 8});
  t.key("log_level", kChoice, "null", kNotNeeded, "rank-N.log has every line")
      .choices({"debug", "info", "warning", "error", "critical"}).any_case();
}
// clang-format on

void add_general_keys(KeyTable& table) {
  table.top_level();
  add_batch_keys(table);
  add_gradient_keys(table);
  add_rank_keys(table);
  add_output_keys(table);
}

}  // namespace sluice::migrate
