// Batch sizes, steps, clipping and progress lines.
#include <algorithm>

#include "base/counted.hpp"
#include "base/format.hpp"
#include "configs/migrate/deepspeed/batch_keys.hpp"
#include "configs/migrate/deepspeed/deepspeed_mapping.hpp"
#include "configs/migrate/deepspeed/deepspeed_rules.hpp"
#include "configs/value.hpp"

namespace sluice::migrate {
namespace {

constexpr std::string_view kGlobalKey = "train.global_batch";

std::int64_t tensor_ranks(const DeepSpeedConfig& config) {
  return std::max<std::int64_t>(1, count_of(config, "tensor_parallel.autotp_size").value_or(1));
}

// The key of the file that decides the global batch.
std::string_view deciding_key(const DeepSpeedMapping& mapping) {
  if (mapping.is_written(kGlobal)) return kGlobal;
  return mapping.is_written(kMicro) ? kMicro : kAccumulation;
}

// The result has no number of micro-batches: micro batch and global batch decide it.
void set_global(DeepSpeedMapping& mapping, const std::string& value, const std::string& origin) {
  for (const std::string_view path : {kAccumulation, kMicro, kGlobal}) {
    if (mapping.is_written(path) && path != deciding_key(mapping)) {
      mapping.set_from(path, kGlobalKey, value, origin);
    }
  }
  mapping.set_from(deciding_key(mapping), kGlobalKey, value, origin);
}

void say_tensor_ranks(DeepSpeedMapping& mapping, std::int64_t theirs, std::int64_t ours) {
  mapping.classify(deciding_key(mapping), KeyClass::kChanged,
                   format_text("DeepSpeed counts the {} tensor-parallel ranks as data-parallel "
                               "ranks: its train_batch_size {} is train.global_batch {}",
                               tensor_ranks(mapping.config()), theirs, ours));
}

std::string micro_batches(std::int64_t count) {
  return count == 1 ? "1 micro-batch" : std::to_string(count) + " micro-batches";
}

void sizes_of_world(DeepSpeedMapping& mapping) {
  const BatchSizes& batch = mapping.config().batch;
  if (!batch.micro || !batch.accumulation || !batch.global) return;  // the file has errors
  const std::string micro = std::to_string(*batch.micro);
  if (mapping.is_written(kMicro)) {
    mapping.set_from(kMicro, "train.micro_batch", micro, std::string(kMicro) + " " + micro);
  } else {
    mapping.set_from(kGlobal, "train.micro_batch", micro,
                     format_text("train_batch_size {} / {} / {}", *batch.global,
                                 counted(batch.ranks, "rank"), micro_batches(*batch.accumulation)));
  }
  const std::int64_t global = *batch.global / batch.ranks * batch.data_parallel;
  set_global(mapping, std::to_string(global),
             format_text("{} x {} x {}", counted(*batch.micro, "sample"),
                         micro_batches(*batch.accumulation),
                         counted(batch.data_parallel, "data-parallel rank")));
  if (global != *batch.global) say_tensor_ranks(mapping, *batch.global, global);
}

void ask_for_world(DeepSpeedMapping& mapping) {
  mapping.missing(deciding_key(mapping),
                  "--world N, the ranks of the job: the batch sizes depend on them");
}

// The sizes that hold for any number of ranks.
void sizes_without_world(DeepSpeedMapping& mapping) {
  const BatchSizes& batch = mapping.config().batch;
  if (!batch.micro) return ask_for_world(mapping);
  const std::int64_t tensor = tensor_ranks(mapping.config());
  const std::string micro = std::to_string(*batch.micro);
  mapping.set_from(kMicro, "train.micro_batch", micro, std::string(kMicro) + " " + micro);
  if (!batch.global) {
    if (batch.accumulation.value_or(1) > 1) return ask_for_world(mapping);
    set_global(mapping, "auto", "one micro-batch a step");
    if (tensor > 1) {
      mapping.classify(kMicro, KeyClass::kChanged,
                       format_text("DeepSpeed counts the {0} tensor-parallel ranks as "
                                   "data-parallel ranks: its train_batch_size is {0} x "
                                   "train.global_batch",
                                   tensor));
    }
    return;
  }
  if (*batch.global % tensor != 0) {
    return mapping.error(kGlobal, format_text("{} is no multiple of the {} tensor-parallel ranks; "
                                              "change one of the two",
                                              *batch.global, tensor));
  }
  const std::int64_t global = *batch.global / tensor;
  set_global(mapping, std::to_string(global), format_text("train_batch_size {}", *batch.global));
  if (tensor > 1) say_tensor_ranks(mapping, *batch.global, global);
}

void map_sizes(DeepSpeedMapping& mapping) {
  for (const std::string_view path : {kGlobal, kMicro, kAccumulation}) {
    if (mapping.is_open(path)) return;
  }
  mapping.config().batch.ranks > 0 ? sizes_of_world(mapping) : sizes_without_world(mapping);
}

void map_steps(DeepSpeedMapping& mapping) {
  constexpr std::string_view kTotal = "scheduler.params.total_num_steps";
  if (mapping.is_set("train.steps")) return;
  if (const auto steps = count_of(mapping.config(), kTotal);
      steps && has_scheduler(mapping.config())) {
    return mapping.set(kTotal, "train.steps", std::to_string(*steps), "steps");
  }
  if (mapping.has_arguments()) return;
  mapping.note(
      "the file has no number of steps; train.steps has Sluice's default 1000: give "
      "--set train.steps=N");
}

void map_clipping(DeepSpeedMapping& mapping) {
  constexpr std::string_view kPath = "gradient_clipping";
  const double clip = mapping.config().number(kPath);
  mapping.set(kPath, "train.clip", format_number(clip));
  if (mapping.is_written(kPath)) return;
  mapping.classify(kPath, KeyClass::kMapped,
                   format_text("train.clip {}: the default is 1.0 since 0.19.3, no clipping before",
                               format_number(clip)));
}

void map_progress(DeepSpeedMapping& mapping) {
  constexpr std::string_view kPath = "steps_per_print";
  const auto steps = count_of(mapping.config(), kPath);
  if (steps && *steps > 0) {
    return mapping.set(kPath, "train.log_every", mapping.clamped(kPath, "train.log_every", *steps));
  }
  mapping.idle(kPath, mapping.shown(kPath) +
                          " prints nothing there; train.log_every keeps Sluice's default 10");
}

}  // namespace

void map_batch(DeepSpeedMapping& mapping) {
  map_sizes(mapping);
  map_steps(mapping);
  map_clipping(mapping);
  map_progress(mapping);
}

}  // namespace sluice::migrate
