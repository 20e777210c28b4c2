// What the operations of a step do, but for those between tiers (tier_ops.cpp).
#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "kernels/cpu/reduce.hpp"
#include "kernels/cpu/softmax_cross_entropy.hpp"
#include "runtime/engine/adamw_step.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/program/write/use_order.hpp"

namespace sluice {

// Routes a unit's gradients into the groups' gradient buffers.
class Engine::Sink final : public GradSink {
 public:
  Sink(GroupStore& store, const UnitSpec& unit) : store_(store), unit_(unit) {}
  GradTarget target(int index) override {
    const ParamRef& ref = unit_.params[static_cast<std::size_t>(index)];
    GroupState& group = store_.group(ref.group);
    const auto i = static_cast<std::size_t>(ref.index);
    const bool add = group.grad_written[i];
    group.grad_written[i] = true;
    return {group.grads[i], add};
  }

 private:
  GroupStore& store_;
  const UnitSpec& unit_;
};

// Of a split backward, at which the groups' gradient buffers need not be there.
class Engine::SplitSink final : public GradSink {
 public:
  SplitSink(std::span<const at::Tensor> params, std::unique_ptr<Deferred>& deferred,
            std::vector<std::pair<int, at::Tensor>>& early)
      : params_(params), deferred_(deferred), early_(early) {}
  std::unique_ptr<Deferred>* deferred() override { return &deferred_; }
  GradTarget target(int index) override {
    const at::Tensor& param = params_[static_cast<std::size_t>(index)];
    early_.emplace_back(index, empty_tensor(param.sizes(), c10::ScalarType::Float, param.device()));
    return {early_.back().second, false};
  }

 private:
  std::span<const at::Tensor> params_;
  std::unique_ptr<Deferred>& deferred_;
  std::vector<std::pair<int, at::Tensor>>& early_;
};

// Row order of the global batch: micro-batch, then data-parallel rank.
std::int64_t Engine::first_row(const Op& op) const {
  const std::int64_t m =
      mode_ == Mode::kEvaluate ? index_ % plan_.shape.micro_batches : op.micro_batch;
  return (m * data_.size() + data_.rank()) * options_.train.micro_batch;
}

UnitCall Engine::call_of(const Op& op) const {
  UnitCall call{.training = training(), .seed = options_.train.seed, .step = index_};
  if (training() || mode_ == Mode::kEvaluate) call.first_sample = first_row(op);
  if (mode_ == Mode::kDecode) {
    call.cache = &caches_[static_cast<std::size_t>(op.unit)];
    call.first_position = index_;
  }
  return call;
}

void Engine::read_rows(const Op& op, SampleRows& rows) const {
  const std::int64_t count = options_.train.micro_batch;
  if (mode_ == Mode::kEvaluate) {
    valid_rows_(index_ / plan_.shape.micro_batches, first_row(op), count, rows);
  } else if (mode_ != Mode::kLosses) {
    train_rows_(index_, first_row(op), count, rows);
  } else if (index_ < row_batches_) {
    (*rows_)(index_, 0, count, rows);
  } else {  // other ranks are at the last ones
    const auto tokens = static_cast<std::size_t>(count * model_.spec.options.seq);
    rows.tokens.assign(tokens, 0);
    rows.targets.assign(tokens, kIgnoreTarget);
  }
}

void Engine::load_batch(const Op& op) {
  const auto begin = std::chrono::steady_clock::now();
  Flight& now = flight(op);
  if (mode_ != Mode::kLogits && mode_ != Mode::kDecode) {
    SampleRows rows;
    read_rows(op, rows);
    const auto to_tensor = [&](const std::vector<std::int64_t>& values) {
      const at::Tensor host = empty_tensor({options_.train.micro_batch, model_.spec.options.seq},
                                           c10::ScalarType::Long);
      check(values.size() == static_cast<std::size_t>(host.numel()), "rows are of the model's seq");
      std::copy(values.begin(), values.end(), host_data<std::int64_t>(host));
      return host.to(device_);
    };
    now.tokens = to_tensor(rows.tokens);
    now.targets = to_tensor(rows.targets);
  }
  if (plan_.shape.begins_model()) now.inputs[0] = now.tokens;
  data_ms_ +=
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// Addresses are those of now: by the time the wire comes to it, a newer slot may have its place.
void Engine::prepare_gather(const Op& op) {
  GroupState& group = store_.group(op.group);
  if (group.fresh) return;  // resident, and not updated since the last gather
  group.fresh = plan_.shape.groups[static_cast<std::size_t>(op.group)].resident;
  const std::int64_t elems = owned_elems(plan_.shape, op.group);
  auto* const window = static_cast<char*>(group.window.data_ptr());
  // A shard that came from another tier has come to its own place.
  const void* const own = group.shard.defined()
                              ? group.shard.data_ptr()
                              : window + data_.rank() * elems * size_of(plan_.shape.dtype);
  gathers_[index_of(op)] = {{own, window, elems, elems}};
}

Ticket Engine::gather(const Op& op) {
  std::vector<AllGatherPiece>& pieces = gathers_[index_of(op)];
  if (pieces.empty()) return {};
  return data_.all_gather(std::move(pieces), plan_.shape.dtype);
}

void Engine::forward(const Op& op) {
  const auto u = static_cast<std::size_t>(op.unit);
  Flight& now = flight(op);
  at::Tensor output = model_.units[u]->forward(call_of(op), store_.unit_params(op.unit),
                                               now.inputs[u], op.save ? &now.saved[u] : nullptr);
  if (failpoint("engine.forward." + std::to_string(index_) + "." + std::to_string(op.unit)) ==
      FailpointOutcome::kPoison) {
    output.fill_(std::numeric_limits<double>::quiet_NaN());
  }
  look_for_non_finite(output);
  if (ends_chunk(plan_.shape, op.unit)) {
    now.output = std::move(output);  // for another stage
  } else {
    now.inputs[u + 1] = std::move(output);
  }
  if (!training()) now.inputs[u].reset();
}

void Engine::open_grads(const Op& op) {
  for (const int g : op.opens) {
    std::vector<bool>& written = store_.group(g).grad_written;
    std::fill(written.begin(), written.end(), false);
  }
}

void Engine::loss_head(const Op& op) {
  const auto u = static_cast<std::size_t>(op.unit);
  Flight& now = flight(op);
  const std::vector<at::Tensor>& params = store_.unit_params(op.unit);
  if (mode_ == Mode::kLogits || mode_ == Mode::kDecode) {
    logits_ = model_.head->logits(params, now.inputs[u], now.inputs[u].size(1) - 1);
  } else {
    const double tokens = static_cast<double>(plan_.shape.micro_batches * data_.size()) *
                          static_cast<double>(options_.train.micro_batch * model_.spec.options.seq);
    open_grads(op);
    Sink sink(store_, model_.spec.units[u]);
    loss_sum_ +=
        model_.head->loss(params, now.inputs[u], now.targets, input_.loss_scale / tokens, scratch_,
                          op.save ? &sink : nullptr, op.save ? &now.gradient : nullptr);
    if (op.save) look_for_non_finite(now.gradient);
  }
  now.inputs[u].reset();
  if (!op.save || !plan_.shape.begins_model()) {
    now.tokens.reset();
    now.targets.reset();
  }
}

void Engine::backward(const Op& op) {
  const auto u = static_cast<std::size_t>(op.unit);
  Flight& now = flight(op);
  if (comes_after_commit(op)) meet(op);
  open_grads(op);
  if (ends_chunk(plan_.shape, op.unit)) now.gradient = std::move(now.arrived[u]);
  Sink whole(store_, model_.spec.units[u]);
  SplitSink half(store_.unit_params(op.unit), now.deferred[u], now.early[u]);
  GradSink& sink = op.split ? static_cast<GradSink&>(half) : whole;
  now.gradient = model_.units[u]->backward(call_of(op), store_.unit_params(op.unit), now.inputs[u],
                                           std::move(now.saved[u]), now.gradient, sink);
  check(!op.split || now.deferred[u] != nullptr, "a unit whose backward is split left its weights");
  now.inputs[u].reset();
  if (mode_ == Mode::kDiagnose && now.gradient.defined()) look_for_non_finite(now.gradient);
  if (!op.split) look_at_grads(op);
  if (op.unit == 0 && plan_.shape.begins_model()) {
    now.tokens.reset();
    now.targets.reset();
  }
}

void Engine::backward_weights(const Op& op) {
  const auto u = static_cast<std::size_t>(op.unit);
  open_grads(op);
  Sink sink(store_, model_.spec.units[u]);
  Flight& now = flight(op);
  for (const auto& [index, grad] : std::exchange(now.early[u], {})) {
    store_gradient(sink.target(index), grad);
  }
  const std::unique_ptr<Deferred> deferred = std::move(now.deferred[u]);
  deferred->run(sink);
  look_at_grads(op);
}

void Engine::look_at_grads(const Op& op) {
  if (mode_ != Mode::kDiagnose) return;
  for (const ParamRef& ref : model_.spec.units[static_cast<std::size_t>(op.unit)].params) {
    look_for_non_finite(store_.group(ref.group).grads[static_cast<std::size_t>(ref.index)]);
  }
}

void Engine::prepare_reduction(const Op& op) {
  std::vector<ReduceScatterPiece>& pieces = reductions_[index_of(op)];
  auto* staging = op.device_slot >= 0 ? reinterpret_cast<float*>(slot(op.device_slot)) : nullptr;
  for (const BucketPiece& piece : program_->buckets[static_cast<std::size_t>(op.bucket)]) {
    GroupState& group = store_.group(piece.group);
    const std::int64_t shard_elems =
        plan_.shape.groups[static_cast<std::size_t>(piece.group)].shard_elems;
    float* output = staging;
    if (staging != nullptr) {
      staging += piece.elems;
    } else {
      const at::Tensor& shard =
          piece.stream == 0 ? group.grad_shard
                            : group.grad_streams[static_cast<std::size_t>(piece.stream - 1)];
      output = shard.data_ptr<float>() + piece.begin;
    }
    pieces.push_back({group.grad_full.data_ptr<float>() + piece.begin, output, piece.elems,
                      shard_elems, op.accumulate && op.device_slot < 0});
  }
}

Ticket Engine::reduce_grads(const Op& op) {
  return data_.reduce_scatter(std::move(reductions_[index_of(op)]), DType::kFloat32,
                              comm_staging_.data_ptr());
}

void Engine::add_grads(const Op& op) {
  if (plan_.shape.placement.gradients == Tier::kHost) {
    tiers_->add_gradient_streams(op.group);
    return;
  }
  GroupState& group = store_.group(op.group);
  for (const at::Tensor& stream : group.grad_streams) group.grad_shard.add_(stream);
}

Ticket Engine::gather_grads(const Op& op) {
  std::vector<AllGatherPiece> pieces;
  for (const BucketPiece& piece : program_->buckets[static_cast<std::size_t>(op.bucket)]) {
    GroupState& group = store_.group(piece.group);
    pieces.push_back({group.grad_shard.data_ptr<float>() + piece.begin,
                      group.grad_full.data_ptr<float>() + piece.begin, piece.elems,
                      group.grad_shard.numel()});
  }
  return data_.all_gather(std::move(pieces), DType::kFloat32);
}

// Of this rank's shard; in stage 0 of every rank's.
std::vector<double> Engine::gradient_sums(int g) {
  const std::int64_t shard_elems = plan_.shape.groups[static_cast<std::size_t>(g)].shard_elems;
  switch (plan_.shape.placement.gradients) {
    case Tier::kHost:
      return {sum_squares(tiers_->host_gradients(g), shard_elems)};
    case Tier::kNvme:
      return {tiers_->sum_squares(g)};
    case Tier::kDevice:
      break;
  }
  return shard_sum_squares(store_.group(g).grad_owned, shard_elems);
}

UpdateArgs Engine::update_args() const {
  return {
      .step = input_.update, .lr = input_.lr, .grad_scale = clip_coefficient_ / input_.loss_scale};
}

void Engine::update(const Op& op) {
  if (mode_ == Mode::kDiagnose || !result_.finite()) return;
  GroupState& group = store_.group(op.group);
  update_shard(group, options_.optimizer, update_args());
  group.fresh = plan_.shape.stage == 0;
}

void Engine::look_for_non_finite(const at::Tensor& value) {
  if (mode_ != Mode::kDiagnose || first_non_finite_ >= 0) return;
  if (!all_finite(value)) first_non_finite_ = op_now_;
}

}  // namespace sluice
