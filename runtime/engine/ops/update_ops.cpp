#include "runtime/engine/ops/update_ops.hpp"

#include "runtime/engine/ops/step_carry.hpp"
#include "runtime/engine/ops/step_run.hpp"
#include "runtime/engine/update_step.hpp"

namespace sluice {
namespace {

bool is_device_update(const Op& op) { return op.kind == OpKind::kUpdate && op.chunk < 0; }

}  // namespace

UpdateOps::UpdateOps(const StepParts& parts, const cuda::StepClip* decision)
    : setup_(parts.setup),
      run_(parts.run),
      store_(parts.store),
      carry_(parts.carry),
      kernel_(device_update(rule_of(parts.setup.options.optimizer.type), parts.setup.device)),
      decision_(decision) {}

void UpdateOps::update(const Op& op) {
  const bool thrown_away = decision_ == nullptr && !run_.result.finite();
  if (run_.mode == RunMode::kDiagnose || thrown_away) return;
  add_updates(store_.group(op.group), setup_.options.optimizer, run_.update(run_.clip_coefficient),
              updates_);
  carry_.parameters_changed(op.group);
  const std::vector<Op>& ops = run_.program->ops;
  const std::size_t next = run_.index_of(op) + 1;
  if (setup_.device.is_cuda() && next < ops.size() && is_device_update(ops[next])) return;
  kernel_(updates_, decision_);
  updates_.clear();
}

}  // namespace sluice
