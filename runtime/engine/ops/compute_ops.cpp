#include "runtime/engine/ops/compute_ops.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/index.hpp"
#include "runtime/engine/group_store.hpp"
#include "runtime/engine/ops/batch_ops.hpp"
#include "runtime/engine/ops/grad_sinks.hpp"
#include "runtime/engine/ops/step_run.hpp"
#include "runtime/engine/update_step.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/program/write/use_order.hpp"

namespace sluice {

ComputeOps::ComputeOps(const StepParts& parts, BatchOps& batches, const cuda::StepScalars* scalars)
    : setup_(parts.setup),
      run_(parts.run),
      flights_(parts.flights),
      store_(parts.store),
      batches_(batches),
      scalars_(scalars),
      caches_(parts.setup.shape().units.size()) {
  if (!setup_.trains() || !setup_.device.is_cuda() || !setup_.shape().ends_model()) return;
  losses_ = empty_tensor({setup_.shape().micro_batches}, c10::ScalarType::Double, setup_.device);
  read_losses_ = empty_tensor(losses_.sizes(), c10::ScalarType::Double).pin_memory();
}

void ComputeOps::begin_program() {
  if (run_.mode != RunMode::kDecode) cached_ = 0;
  if (run_.mode == RunMode::kDiagnose) first_non_finite_ = -1;
}

void ComputeOps::bind(const Buffer& buffer, const at::Tensor& bytes) {
  if (buffer.tag == Tag::kLossHead) scratch_ = bytes;
  if (buffer.tag == Tag::kKvCache) {
    nth(caches_, buffer.unit) = bytes.view(scalar_type(setup_.shape().dtype)).view({1, -1});
  }
}

UnitCall ComputeOps::call_of(const Op& op) const {
  UnitCall call{.training = run_.training(), .seed = setup_.options.train.seed, .step = run_.index};
  if (run_.training() || run_.mode == RunMode::kEvaluate) {
    call.first_sample = first_row(setup_, run_, op);
  }
  if (run_.training()) call.scalars = scalars_;
  if (run_.mode == RunMode::kDecode) {
    call.cache = &nth(caches_, op.unit);
    call.first_position = run_.index;
  }
  call.documents = batches_.documents(op);
  return call;
}

void ComputeOps::forward(const Op& op) {
  const auto u = static_cast<std::size_t>(op.unit);
  Flight& flight = flights_.of(op);
  at::Tensor output =
      setup_.model.units[u]->forward(call_of(op), store_.unit_params(op.unit), flight.inputs[u],
                                     op.save ? &flight.saved[u] : nullptr);
  if (failpoint("engine.forward." + std::to_string(run_.index) + "." + std::to_string(op.unit)) ==
      FailpointOutcome::kPoison) {
    output.fill_(std::numeric_limits<double>::quiet_NaN());
  }
  look_at(output);
  if (ends_chunk(setup_.shape(), op.unit)) {
    flight.output = output.contiguous();  // for another stage
  } else {
    flight.inputs[u + 1] = std::move(output);
  }
  if (!run_.training() || !has_backward(setup_.shape(), op.unit)) flight.inputs[u].reset();
}

void ComputeOps::loss_head(const Op& op) {
  const auto u = static_cast<std::size_t>(op.unit);
  Flight& flight = flights_.of(op);
  at::Tensor& input = flight.inputs[u];
  LossHead& head = *setup_.model.head;
  const std::vector<at::Tensor>& params = store_.unit_params(op.unit);
  if (run_.mode == RunMode::kLogits || run_.mode == RunMode::kDecode) {
    logits_ = head.logits(params, input, input.size(1) - 1);
  } else {
    open_grads(op);
    GroupSink sink(store_, setup_.spec().units[u]);
    const LossSum loss =
        head.loss(params, input, flight.targets,
                  {run_.loss_factor(setup_.tokens_of_step()), run_.training() ? scalars_ : nullptr},
                  scratch_, op.save ? &sink : nullptr, op.save ? &flight.gradient : nullptr);
    if (run_.training() && losses_.defined()) {
      loss.write_to(losses_.select(0, op.micro_batch));
    } else {
      run_.loss_sum += loss;
    }
    if (op.save) {
      look_at(flight.gradient);
      look_at_grads(op);
    }
    finish_gradient(op);
  }
  input.reset();
  const bool embeds_again =
      op.save && setup_.shape().begins_model() && has_backward(setup_.shape(), 0);
  if (!embeds_again) flight.release_batch();
}

void ComputeOps::backward(const Op& op) {
  const auto u = static_cast<std::size_t>(op.unit);
  Flight& flight = flights_.of(op);
  const std::vector<at::Tensor>& params = store_.unit_params(op.unit);
  open_grads(op);
  if (ends_chunk(setup_.shape(), op.unit)) flight.gradient = std::move(flight.arrived[u]);
  GroupSink whole(store_, setup_.spec().units[u]);
  SplitSink half(whole, flight.deferred[u], flight.early[u]);
  GradSink& sink = op.split ? static_cast<GradSink&>(half) : whole;
  flight.gradient = setup_.model.units[u]->backward(
      call_of(op), params, flight.inputs[u], std::move(flight.saved[u]), flight.gradient, sink);
  check(!op.split || flight.deferred[u] != nullptr,
        "a unit whose backward is split left its weights");
  flight.inputs[u].reset();
  if (flight.gradient.defined()) look_at(flight.gradient);
  finish_gradient(op);
  if (!op.split) look_at_grads(op);
  if (op.unit == 0 && setup_.shape().begins_model()) flight.release_batch();
}

void ComputeOps::backward_weights(const Op& op) {
  const auto u = static_cast<std::size_t>(op.unit);
  open_grads(op);
  GroupSink sink(store_, setup_.spec().units[u]);
  Flight& flight = flights_.of(op);
  for (const auto& [index, grad] : std::exchange(flight.early[u], {})) {
    store_gradient(sink.target(index), grad);
  }
  const std::unique_ptr<Deferred> deferred = std::move(flight.deferred[u]);
  deferred->run(sink);
  look_at_grads(op);
}

// The units before a frozen model's first trained one have no backward. A message to another stage
// is contiguous.
void ComputeOps::finish_gradient(const Op& op) {
  at::Tensor& gradient = flights_.of(op).gradient;
  if (op.unit > 0 && !has_backward(setup_.shape(), op.unit - 1)) gradient.reset();
  if (gradient.defined() && begins_chunk(setup_.shape(), op.unit)) gradient = gradient.contiguous();
}

// The next gradient of each parameter of these groups replaces the buffer's content.
void ComputeOps::open_grads(const Op& op) {
  for (const int g : op.opens) {
    std::vector<bool>& written = store_.group(g).grad_written;
    std::fill(written.begin(), written.end(), false);
  }
}

void ComputeOps::look_at(const at::Tensor& value) {
  if (run_.mode != RunMode::kDiagnose || first_non_finite_ >= 0) return;
  if (!all_finite(value)) first_non_finite_ = run_.entered;
}

void ComputeOps::look_at_grads(const Op& op) {
  if (run_.mode != RunMode::kDiagnose) return;
  for (const ParamRef& ref : nth(setup_.spec().units, op.unit).params) {
    const at::Tensor& grad = nth(store_.group(ref.group).grads, ref.index);
    if (grad.defined()) look_at(grad);
  }
}

void ComputeOps::add_losses() {
  if (!losses_.defined()) return;
  read_losses_.copy_(losses_);
  const std::span<const double> losses(host_data<double>(read_losses_),
                                       static_cast<std::size_t>(read_losses_.numel()));
  for (const double loss : losses) run_.loss_sum += loss;
}

at::Tensor ComputeOps::take_logits() { return std::exchange(logits_, {}); }

}  // namespace sluice
