#include "runtime/engine/ops/parameter_ops.hpp"

#include <utility>

#include "runtime/engine/group_store.hpp"
#include "runtime/engine/ops/program_memory.hpp"
#include "runtime/engine/ops/step_carry.hpp"
#include "runtime/engine/ops/step_run.hpp"

namespace sluice {

ParameterOps::ParameterOps(const StepParts& parts)
    : setup_(parts.setup),
      memory_(parts.memory),
      run_(parts.run),
      store_(parts.store),
      carry_(parts.carry) {}

void ParameterOps::begin_program() { pieces_.assign(run_.program->ops.size(), {}); }

void ParameterOps::bind(const Buffer& buffer) {
  store_.bind_params(buffer.group, memory_.slot(buffer));
}

void ParameterOps::unbind(const Buffer& buffer) { store_.unbind_params(buffer.group); }

void ParameterOps::enter_gather(const Op& op) {
  if (!carry_.begin_gather(op.group)) return;
  const StepShape& shape = setup_.shape();
  const GroupState& group = store_.group(op.group);
  const std::int64_t elems = owned_elems(shape, op.group);
  auto* const window = static_cast<char*>(group.window.data_ptr());
  // A shard from another tier was fetched into its place in the window.
  const void* const own = group.shard.defined()
                              ? group.shard.data_ptr()
                              : window + setup_.data().rank() * elems * size_of(shape.dtype);
  pieces_[run_.index_of(op)] = {{own, window, elems, elems}};
}

Ticket ParameterOps::gather(const Op& op) {
  std::vector<AllGatherPiece>& pieces = pieces_[run_.index_of(op)];
  if (pieces.empty()) return {};
  return setup_.data().all_gather(std::move(pieces), setup_.shape().dtype);
}

}  // namespace sluice
