#include "runtime/engine/ops/pipe_ops.hpp"

#include <utility>

#include "base/index.hpp"
#include "runtime/engine/ops/step_run.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/model_slices.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

// A link is a group of two, used in one direction (PipelineLinks).
constexpr int kSender = 0;
constexpr int kReceiver = 1;

std::int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.nbytes());
}

at::Tensor& received(Flight& flight, const Op& op) {
  const auto u = static_cast<std::size_t>(op.unit);
  return op.kind == OpKind::kReceiveActivation ? flight.inputs[u] : flight.arrived[u];
}

}  // namespace

PipeOps::PipeOps(const StepParts& parts)
    : setup_(parts.setup), run_(parts.run), flights_(parts.flights) {}

void PipeOps::begin_program() { sent_.assign(run_.program->buffers.size(), {}); }

void PipeOps::unbind(BufferId id) { nth(sent_, id).reset(); }

// [rows, tokens, H]; a sequence-parallel rank has its own tokens only.
void PipeOps::enter_receive(const Op& op) {
  const ModelSpec& spec = setup_.spec();
  const std::int64_t tokens = spec.part.own_tokens(run_.size.tokens);
  received(flights_.of(op), op) = empty_tensor({run_.size.rows, tokens, spec.options.hidden},
                                               scalar_type(setup_.shape().dtype), setup_.device);
}

Ticket PipeOps::receive(const Op& op) {
  const at::Tensor& to = received(flights_.of(op), op);
  const PipelineLinks& links = setup_.comms->links();
  Communicator& link =
      op.kind == OpKind::kReceiveActivation ? *links.activations_in : *links.gradients_in;
  return link.receive(kSender, to.data_ptr(), bytes_of(to));
}

// The tensor lives until its buffer dies; the program waits for the send before that.
Ticket PipeOps::send(const Op& op) {
  Flight& flight = flights_.of(op);
  const bool activation = op.kind == OpKind::kSendActivation;
  at::Tensor& made = activation ? flight.output : flight.gradient;
  at::Tensor& sent = nth(sent_, op.device_slot);
  sent = std::exchange(made, at::Tensor()).contiguous();
  const PipelineLinks& links = setup_.comms->links();
  Communicator& link = activation ? *links.activations_out : *links.gradients_out;
  return link.send(kReceiver, sent.data_ptr(), bytes_of(sent));
}

}  // namespace sluice
