#include "runtime/engine/ops/step_run.hpp"

namespace sluice {

void StepRun::begin_step(const StepInput& of_step) {
  input = of_step;
  if (input.update == 0) input.update = input.step;
  result = {};
  loss_sum = 0;
}

void StepRun::begin_program(const Program& next, RunMode of_mode, std::int64_t at,
                            BatchSize of_batch) {
  program = &next;
  mode = of_mode;
  index = at;
  size = of_batch;
  exchanges.clear();
  learned_targets = 0;
  data_ms = 0;
}

StepTimes StepRun::times(const std::vector<OpTiming>& of_operations) const {
  StepTimes times;
  for (std::size_t i = 0; i < of_operations.size(); ++i) {
    const Op& op = program->ops[i];
    const OpTiming& timing = of_operations[i];
    const double run = 1e-3 * static_cast<double>(timing.end_us - timing.begin_us);
    times.comm += 1e-3 * static_cast<double>(timing.begin_us - timing.wait_us);
    switch (op.kind) {
      case OpKind::kForward:
      case OpKind::kLossHead:
        times.forward += run;
        break;
      case OpKind::kBackward:
      case OpKind::kBackwardWeights:
        times.backward += run;
        break;
      case OpKind::kMeet:
      case OpKind::kAddReplicas:
        times.comm += run;
        break;
      case OpKind::kGather:  // of a rank alone
        if (op.lane == Lane::kCompute) times.comm += run;
        break;
      case OpKind::kNormAndScale:
        times.optimizer += run;
        break;
      case OpKind::kUpdate:
        times.optimizer +=
            op.lane == Lane::kCompute
                ? run
                : 1e-3 * static_cast<double>(timing.lane_end_us - timing.lane_begin_us);
        break;
      default:
        break;
    }
  }
  times.data = data_ms;
  return times;
}

}  // namespace sluice
