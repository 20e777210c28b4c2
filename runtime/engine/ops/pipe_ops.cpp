#include "runtime/engine/ops/pipe_ops.hpp"

#include <utility>

#include "base/index.hpp"
#include "runtime/engine/ops/step_graphs.hpp"
#include "runtime/engine/ops/step_run.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/model_slices.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

// A link is a group of two, used in one direction (PipelineLinks).
constexpr int kSender = 0;
constexpr int kReceiver = 1;

at::Tensor& received(Flight& flight, const Op& op) {
  const auto u = static_cast<std::size_t>(op.unit);
  return op.kind == OpKind::kReceiveActivation ? flight.inputs[u] : flight.arrived[u];
}

}  // namespace

PipeOps::PipeOps(const StepParts& parts, StepGraphs& graphs)
    : setup_(parts.setup), run_(parts.run), flights_(parts.flights), graphs_(graphs) {}

void PipeOps::begin_program() { sent_.assign(run_.program->buffers.size(), {}); }

void PipeOps::unbind(BufferId id) { nth(sent_, id).reset(); }

// [rows, tokens, H]; a sequence-parallel rank has its own tokens only.
Ticket PipeOps::receive(const Op& op) {
  const PipeMessage to = graphs_.message(op, [&] {
    const ModelSpec& spec = setup_.spec();
    const std::int64_t tokens = spec.part.own_tokens(run_.size.tokens);
    return received(flights_.of(op), op) =
               empty_tensor({run_.size.rows, tokens, spec.options.hidden},
                            scalar_type(setup_.shape().dtype), setup_.device);
  });
  const PipelineLinks& links = setup_.comms->links();
  Communicator& link =
      op.kind == OpKind::kReceiveActivation ? *links.activations_in : *links.gradients_in;
  return link.receive(kSender, to.data, to.bytes);
}

// The tensor lives until its buffer dies; the program waits for the send before that.
Ticket PipeOps::send(const Op& op) {
  const bool activation = op.kind == OpKind::kSendActivation;
  const PipeMessage from = graphs_.message(op, [&] {
    Flight& flight = flights_.of(op);
    at::Tensor& made = activation ? flight.output : flight.gradient;
    return nth(sent_, op.device_slot) = std::exchange(made, at::Tensor());
  });
  const PipelineLinks& links = setup_.comms->links();
  Communicator& link = activation ? *links.activations_out : *links.gradients_out;
  return link.send(kReceiver, from.data, from.bytes);
}

}  // namespace sluice
