#include "configs/derived.hpp"

#include <algorithm>

namespace sluice {

Derived derive(const RunConfig& run, int world) {
  const ModelOptions model = with_defaults(run.model);
  const ParallelOptions& parallel = run.parallel;
  Derived out;
  out.dp = parallel.data > 0 ? parallel.data : world / (parallel.tensor * parallel.pipeline);
  const std::int64_t one_pass = run.train.micro_batch * out.dp;
  out.global_batch = run.train.global_batch > 0 ? run.train.global_batch : one_pass;
  out.accumulation = out.global_batch / one_pass;
  out.kv_heads = model.kv_heads;
  out.head_size = model.head_dim;
  out.ffn = model.ffn;
  out.decay_steps = run.schedule.decay_steps.is_auto()
                        ? run.train.steps
                        : run.schedule.decay_steps.of(run.train.steps);
  if (run.schedule.type == ScheduleType::kWsd) {
    out.wsd_decay = run.schedule.wsd_decay.is_auto()
                        ? std::max<std::int64_t>(1, out.decay_steps / 10)
                        : run.schedule.wsd_decay.of(run.train.steps);
  }
  return out;
}

}  // namespace sluice
