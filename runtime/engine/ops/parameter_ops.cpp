#include "runtime/engine/ops/parameter_ops.hpp"

#include <utility>

#include "runtime/engine/group_store.hpp"
#include "runtime/engine/ops/program_memory.hpp"
#include "runtime/engine/ops/step_carry.hpp"
#include "runtime/engine/ops/step_run.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {

ParameterOps::ParameterOps(const StepParts& parts)
    : setup_(parts.setup),
      memory_(parts.memory),
      run_(parts.run),
      store_(parts.store),
      carry_(parts.carry) {}

void ParameterOps::begin_program() { gathers_.assign(run_.program->ops.size(), {}); }

void ParameterOps::bind(const Buffer& buffer) {
  store_.bind_params(buffer.group, memory_.slot(buffer));
}

void ParameterOps::unbind(const Buffer& buffer) { store_.unbind_params(buffer.group); }

void ParameterOps::enter_gather(const Op& op) {
  if (op.lane == Lane::kCompute || !carry_.begin_gather(op.group)) return;
  const StepShape& shape = setup_.shape();
  const GroupState& group = store_.group(op.group);
  const std::int64_t elems = owned_elems(shape, op.group);
  auto* const window = static_cast<char*>(group.window.data_ptr());
  // A shard from another tier was fetched into its place in the window.
  const void* const own = group.shard.defined()
                              ? group.shard.data_ptr()
                              : window + setup_.data().rank() * elems * size_of(shape.dtype);
  Gather& gather = gathers_[run_.index_of(op)];
  gather.pieces = {{own, window, elems, elems}};
  if (rounds_master(shape, op.group)) gather.rounded = own_place(op);
}

// A view of the arena, which stays where it is when the group's window moves to another slot.
at::Tensor ParameterOps::own_place(const Op& op) const {
  const StepShape& shape = setup_.shape();
  const std::int64_t elems = owned_elems(shape, op.group);
  return memory_.bytes_of(run_.buffer(op.device_slot))
      .view(scalar_type(shape.dtype))
      .narrow(0, setup_.data().rank() * elems, elems);
}

void ParameterOps::round(const Op& op) { round_to(own_place(op), store_.group(op.group).master); }

Ticket ParameterOps::gather(const Op& op) {
  Gather& gather = gathers_[run_.index_of(op)];
  if (gather.pieces.empty()) return {};
  if (gather.rounded.defined()) round_to(gather.rounded, store_.group(op.group).master);
  return setup_.data().all_gather(std::move(gather.pieces), setup_.shape().dtype);
}

}  // namespace sluice
