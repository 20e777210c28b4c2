// Rows of aio, checkpoint, datastates_ckpt, activation_checkpointing and pipeline.
#include "configs/migrate/deepspeed/key_table.hpp"

namespace sluice::migrate {

using enum KeyType;
using enum KeyClass;

// clang-format off
static void add_aio_keys(KeyTable& t) {
  t.section("aio", Unknown::kIgnores, kMapped, "offload").nullable();
  t.key("block_size", kInt, "1048576", kMapped, "offload.block_bytes").least(1);
  t.key("queue_depth", kInt, "8", kMapped, "offload.queue_depth").least(1);
  t.key("intra_op_parallelism", kInt, "1", kNotNeeded,
        "one IO thread of Sluice keeps the whole queue busy").least(1).since({0, 16, 4});
  t.key("thread_count", kInt, "1", kNotNeeded,
        "one IO thread of Sluice keeps the whole queue busy").removed({0, 16, 4});
  t.key("single_submit", kBool, "false", kNotNeeded, "Sluice submits in batches");
  t.key("overlap_events", kBool, "true", kNotNeeded,
        "Sluice refills the queue with every completion");
  t.key("use_gds", kBool, "false", kRefused, "Sluice has no GPUDirect Storage");
}

static void add_checkpoint_keys(KeyTable& t) {
  t.section("checkpoint", Unknown::kIgnores, kNotNeeded, "checkpoint");
  t.key("tag_validation", kChoice, "\"Warn\"", kNotNeeded,
        "one manifest names a checkpoint of Sluice for all ranks")
      .choices({"Warn", "Ignore", "Fail"}).any_case();
  t.key("load_universal", kBool, "false", kNotNeeded,
        "sluice checkpoint import reads universal checkpoints");
  t.key("use_node_local_storage", kBool, "false", kRefused,
        "checkpoint.dir is one directory that all hosts see");
  t.key("checkpoint_serialization", kBool, "true", kIgnored,
        "DeepSpeed parses the key and never reads the value");
  t.section("checkpoint.parallel_write", Unknown::kIgnores, kNotNeeded,
            "every rank of Sluice writes its own ranges");
  t.key("pipeline_stage", kBool, "false", kNotNeeded,
        "every rank of Sluice writes its own ranges").checked();
  t.section("checkpoint.writer", Unknown::kIgnores, kNotNeeded,
            "checkpoint.async: writes run beside the steps").nullable();
  t.key("type", kChoice, "\"fast\"", kNotNeeded, "Sluice has one writer")
      .choices({"mock", "python", "fast"}).any_case();
  t.key("decoupled", kBool, "false", kNotNeeded, "checkpoint.async");
  t.key("io_buffer_size", kInt, "67108864", kNotNeeded, "Sluice plans its own buffers").least(1);
  t.key("io_buffer_double", kBool, "true", kNotNeeded, "Sluice plans its own buffers");
  t.key("io_multiplier", kInt, "1", kNotNeeded, "Sluice plans its own buffers").least(1);
  t.key("show_statistics", kBool, "false", kNotNeeded, "the log has the time of every save");
  t.key("data_parallel", kChoice, "null", kNotNeeded,
        "every rank of Sluice writes its own ranges")
      .choices({"replica", "socket", "machine"}).any_case();
  t.top_level();
  t.key("datastates_ckpt", kAny, "null", kNotNeeded,
        "a checkpoint engine of a third party; checkpoint.async is Sluice's");
}

static void add_activation_keys(KeyTable& t) {
  t.section("activation_checkpointing", Unknown::kIgnores, kChanged,
            "DeepSpeed reads the section only in a model that calls its checkpoint function");
  t.key("partition_activations", kBool, "false", kNotNeeded,
        "parallel.sequence shards activations over tensor-parallel ranks");
  t.key("cpu_checkpointing", kBool, "false", kChanged,
        "if true: recompute.mode: full and offload.activations: host");
  t.key("contiguous_memory_optimization", kBool, "false", kNotNeeded,
        "activations of Sluice lie in one arena");
  t.key("number_checkpoints", kInt, "null", kNotNeeded,
        "read only with contiguous_memory_optimization").least(1);
  t.key("synchronize_checkpoint_boundary", kBool, "false", kNotNeeded,
        "Sluice waits for operations, not for the device");
  t.key("profile", kBool, "false", kNotNeeded, "output.trace has every operation");
}

static void add_pipeline_keys(KeyTable& t) {
  constexpr std::string_view kDead = "DeepSpeed parses the key and never reads the value";
  t.section("pipeline", Unknown::kIgnores, kNotNeeded,
            "parallel.pipeline; DeepSpeed takes the number of stages from the model's code");
  t.key("stages", kAny, "\"auto\"", kIgnored, kDead).keeps_auto();
  t.key("partition", kAny, "\"best\"", kIgnored, kDead).keeps_auto();
  t.key("seed_layers", kBool, "false", kIgnored, kDead);
  t.key("activation_checkpoint_interval", kInt, "0", kChanged,
        "recompute.mode: full if the value is above 0").least(0);
  t.key("pipe_partitioned", kBool, "true", kNotNeeded,
        "parallel.sequence shards what stages exchange");
  t.key("grad_partitioned", kBool, "true", kNotNeeded,
        "parallel.sequence shards what stages exchange");
  t.key("use_reentrant", kBool, "true", kNotNeeded, "concerns torch.utils.checkpoint only");
}
// clang-format on

void add_storage_keys(KeyTable& table) {
  add_aio_keys(table);
  add_checkpoint_keys(table);
  add_activation_keys(table);
  add_pipeline_keys(table);
}

}  // namespace sluice::migrate
