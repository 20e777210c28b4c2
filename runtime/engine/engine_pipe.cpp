// What a pipeline stage does with the stages beside it.
#include <algorithm>

#include "base/error.hpp"
#include "runtime/engine/engine.hpp"
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

}  // namespace

// [rows, tokens, H]; of a sequence-parallel rank its own tokens.
at::Tensor Engine::empty_boundary() const {
  const std::int64_t tokens = model_.spec.part.own_tokens(tokens_of_row_);
  return empty_tensor({rows_at_once_, tokens, model_.spec.options.hidden},
                      scalar_type(plan_.shape.dtype), device_);
}

// What comes has its place before it does.
void Engine::prepare_receive(const Op& op) {
  const auto u = static_cast<std::size_t>(op.unit);
  Flight& now = flight(op);
  (op.kind == OpKind::kReceiveActivation ? now.inputs[u] : now.arrived[u]) = empty_boundary();
}

Ticket Engine::receive(const Op& op) {
  const auto u = static_cast<std::size_t>(op.unit);
  const bool activation = op.kind == OpKind::kReceiveActivation;
  const at::Tensor& to = activation ? flight(op).inputs[u] : flight(op).arrived[u];
  const PipelineLinks& links = comms_->links();
  Communicator& link = activation ? *links.activations_in : *links.gradients_in;
  return link.receive(kSender, to.data_ptr(), bytes_of(to));
}

// The tensor lives until its buffer dies, for which the program waits for the send.
Ticket Engine::send(const Op& op) {
  Flight& now = flight(op);
  const bool activation = op.kind == OpKind::kSendActivation;
  at::Tensor& sent = sent_[static_cast<std::size_t>(op.device_slot)];
  sent = std::move(activation ? now.output : now.gradient).contiguous();
  (activation ? now.output : now.gradient).reset();
  const PipelineLinks& links = comms_->links();
  Communicator& link = activation ? *links.activations_out : *links.gradients_out;
  return link.send(kReceiver, sent.data_ptr(), bytes_of(sent));
}

// The last stage has them; every rank gets those of its own tensor and data coordinates.
at::Tensor Engine::share_logits() {
  const int stages = comms_->mesh().size(MeshAxis::kPipeline);
  if (stages == 1) return std::move(logits_);
  const double mine = logits_.defined() ? static_cast<double>(logits_.size(1)) : 0;
  const std::vector<double> widths = world_.all_gather_values({&mine, 1});
  const MeshCoordinates& at = comms_->at();
  const int from = comms_->mesh().world_rank({at.tp, at.dp, stages - 1});
  const auto words = static_cast<std::int64_t>(widths[static_cast<std::size_t>(from)]);
  const at::Tensor own =
      empty_tensor({rows_at_once_, words}, c10::ScalarType::Float, device_).zero_();
  if (logits_.defined()) own.copy_(logits_);
  logits_.reset();
  const std::int64_t elems = own.numel();
  const at::Tensor all = empty_tensor({world_.size() * elems}, c10::ScalarType::Float, device_);
  world_.all_gather({{own.data_ptr(), all.data_ptr(), elems, elems}}, DType::kFloat32).wait();
  return all.narrow(0, from * elems, elems).view({rows_at_once_, words}).clone();
}

// By which operations of all stages compare: micro-batches do not meet, and of one the forwards
// come first, from the first unit to the last, then the backwards.
double Engine::place_in_step(const Op& op) const {
  const ModelSpec& spec = model_.spec;
  const int unit = units_of(spec.options, spec.part)[static_cast<std::size_t>(op.unit)];
  const double units = unit_count(spec.options);
  const bool back = op.kind == OpKind::kBackward || op.kind == OpKind::kBackwardWeights;
  return op.micro_batch * 2 * units + (back ? 2 * units - unit : unit);
}

}  // namespace sluice
