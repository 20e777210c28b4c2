#include "runtime/engine/ops/update_ops.hpp"

#include "runtime/engine/ops/step_carry.hpp"
#include "runtime/engine/ops/step_run.hpp"
#include "runtime/engine/update_step.hpp"

namespace sluice {

UpdateOps::UpdateOps(const StepParts& parts)
    : setup_(parts.setup), run_(parts.run), store_(parts.store), carry_(parts.carry) {}

void UpdateOps::update(const Op& op) {
  if (run_.mode == RunMode::kDiagnose || !run_.result.finite()) return;
  update_shard(store_.group(op.group), setup_.options.optimizer,
               run_.update(run_.clip_coefficient));
  carry_.parameters_changed(op.group);
}

}  // namespace sluice
