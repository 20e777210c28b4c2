#include "runtime/engine/ops/update_ops.hpp"

#include "runtime/engine/ops/step_carry.hpp"
#include "runtime/engine/ops/step_run.hpp"
#include "runtime/engine/update_step.hpp"

namespace sluice {
namespace {

// Behind the norm.
bool is_device_update(const Op& op) {
  return op.kind == OpKind::kUpdate && op.chunk < 0 && !op.in_backward;
}

}  // namespace

UpdateOps::UpdateOps(const StepParts& parts)
    : setup_(parts.setup),
      run_(parts.run),
      store_(parts.store),
      carry_(parts.carry),
      kernel_(device_update(rule_of(parts.setup.options.optimizer.type), parts.setup.device)) {}

void UpdateOps::update(const Op& op, const cuda::StepClip* decision) {
  const bool thrown_away = decision == nullptr && !run_.result.finite();
  if (run_.mode == RunMode::kDiagnose || thrown_away) return;
  const double clip = op.in_backward ? 1 : run_.clip_coefficient;
  add_updates(store_.group(op.group), setup_.options.optimizer, run_.update(clip), updates_);
  carry_.parameters_changed(op.group);
  const std::vector<Op>& ops = run_.program->ops;
  const std::size_t next = run_.index_of(op) + 1;
  const bool goes_on = is_device_update(op) && next < ops.size() && is_device_update(ops[next]);
  if (setup_.device.is_cuda() && goes_on) return;
  kernel_(updates_, decision);
  updates_.clear();
}

}  // namespace sluice
