// What the operations of a step do, but for those between tiers (tier_ops.cpp).
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/base/error.hpp"
#include "kernels/base/failpoint.hpp"
#include "kernels/cpu/reduce.hpp"
#include "kernels/cpu/softmax_cross_entropy.hpp"
#include "runtime/engine/adamw_step.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"

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

// Row order of the global batch: micro-batch, then rank.
std::int64_t Engine::first_row(const Op& op) const {
  const std::int64_t m =
      mode_ == Mode::kEvaluate ? index_ % plan_.shape.micro_batches : op.micro_batch;
  return (m * comm_.size() + comm_.rank()) * options_.train.micro_batch;
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
  now.inputs[0] = now.tokens;
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
                              : window + comm_.rank() * elems * size_of(plan_.shape.dtype);
  gathers_[index_of(op)] = {{own, window, elems, elems}};
}

Ticket Engine::gather(const Op& op) {
  std::vector<AllGatherPiece>& pieces = gathers_[index_of(op)];
  if (pieces.empty()) return {};
  return comm_.all_gather(std::move(pieces), plan_.shape.dtype);
}

namespace {

// Storages that leave and come back: of a unit's input, and of what it kept for backward.
std::vector<c10::Storage> travelling(const at::Tensor& input, const Saved* saved) {
  std::vector<c10::Storage> storages{input.storage()};
  if (saved == nullptr) return storages;
  for (const at::Tensor& tensor : saved->tensors()) {
    if (tensor.defined()) storages.push_back(tensor.storage());
  }
  return storages;
}

}  // namespace

// Before backward tensors stay, without memory: views of them, and their shapes, are whole again
// when it comes back. After backward there is nothing to come back.
void Engine::let_input_go(Flight& flight, std::size_t unit) {
  at::Tensor& input = flight.inputs[unit];
  const bool returns =
      training() && input.defined() && leaving_bytes(plan_.shape, static_cast<int>(unit)) > 0;
  if (!returns) {
    input.reset();
    return;
  }
  for (const c10::Storage& storage : travelling(input, flight.saved[unit].get())) {
    storage.set_data_ptr_noswap(c10::DataPtr(nullptr, storage.device()));
  }
}

// On the engine's thread; the copy's thread fills it.
void Engine::take_input_back(Flight& flight, std::size_t unit) {
  for (const c10::Storage& storage : travelling(flight.inputs[unit], flight.saved[unit].get())) {
    storage.set_data_ptr_noswap(
        c10::GetAllocator(storage.device_type())->allocate(storage.nbytes()));
  }
}

void Engine::move_input(const Op& op) {
  const auto u = static_cast<std::size_t>(op.unit);
  const Flight& now = flight(op);
  const Buffer& there = program_->buffers[static_cast<std::size_t>(op.host_slot)];
  std::byte* host = tiers_->host_arena() + there.arena_offset;
  std::int64_t left = there.bytes;
  for (const c10::Storage& storage : travelling(now.inputs[u], now.saved[u].get())) {
    const std::size_t bytes = storage.nbytes();
    left -= static_cast<std::int64_t>(bytes);
    check(left >= 0, "what a unit keeps is what its profile said");
    void* const device = storage.mutable_data();
    const bool leaves = op.kind == OpKind::kSaveInput;
    std::memcpy(leaves ? static_cast<void*>(host) : device,
                leaves ? device : static_cast<void*>(host), bytes);
    host += bytes;
  }
  check(left == 0, "all that a unit keeps travels");
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
  now.inputs[u + 1] = std::move(output);
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
    const double tokens = static_cast<double>(plan_.shape.micro_batches * comm_.size()) *
                          static_cast<double>(options_.train.micro_batch * model_.spec.options.seq);
    open_grads(op);
    Sink sink(store_, model_.spec.units[u]);
    loss_sum_ +=
        model_.head->loss(params, now.inputs[u], now.targets, input_.loss_scale / tokens, scratch_,
                          op.save ? &sink : nullptr, op.save ? &now.gradient : nullptr);
    if (op.save) look_for_non_finite(now.gradient);
  }
  now.inputs[u].reset();
  if (!op.save) {
    now.tokens.reset();
    now.targets.reset();
  }
}

void Engine::backward(const Op& op) {
  const auto u = static_cast<std::size_t>(op.unit);
  Flight& now = flight(op);
  open_grads(op);
  Sink sink(store_, model_.spec.units[u]);
  now.gradient = model_.units[u]->backward(call_of(op), store_.unit_params(op.unit), now.inputs[u],
                                           std::move(now.saved[u]), now.gradient, sink);
  now.inputs[u].reset();
  if (mode_ == Mode::kDiagnose) {
    if (now.gradient.defined()) look_for_non_finite(now.gradient);
    for (const ParamRef& ref : model_.spec.units[u].params) {
      look_for_non_finite(store_.group(ref.group).grads[static_cast<std::size_t>(ref.index)]);
    }
  }
  if (op.unit == 0) {
    now.tokens.reset();
    now.targets.reset();
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
  return comm_.reduce_scatter(std::move(reductions_[index_of(op)]), DType::kFloat32,
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
  return comm_.all_gather(std::move(pieces), DType::kFloat32);
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

// The norm is the sum over groups, then shards, of each shard's sum of squares: the same numbers in
// the same order on every stage.
void Engine::norm_and_scale() {
  std::vector<double> mine{loss_sum_, input_.vote};
  constexpr std::size_t kFirstSum = 2;
  for (int g = 0; g < store_.size(); ++g) {
    const std::vector<double> sums = gradient_sums(g);
    mine.insert(mine.end(), sums.begin(), sums.end());
  }
  const std::vector<double> all = comm_.all_gather_values(mine);
  const auto groups = static_cast<std::size_t>(store_.size());
  const auto ranks = static_cast<std::size_t>(comm_.size());
  double squares = 0;
  double loss = 0;
  for (std::size_t g = 0; g < groups; ++g) {
    for (std::size_t r = 0; r < ranks; ++r) {
      // Stage 0 has every shard's sum itself; the others have one from each rank.
      squares += plan_.shape.stage == 0 ? mine[kFirstSum + g * ranks + r]
                                        : all[r * mine.size() + kFirstSum + g];
    }
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    loss += all[r * mine.size()];
    result_.vote = std::max(result_.vote, all[r * mine.size() + 1]);
  }
  result_.loss = loss / (static_cast<double>(plan_.shape.micro_batches * comm_.size()) *
                         static_cast<double>(options_.train.micro_batch * model_.spec.options.seq));
  result_.grad_norm = std::sqrt(squares) / input_.loss_scale;
  clip_coefficient_ = options_.train.clip > 0
                          ? std::min(1.0, options_.train.clip / (result_.grad_norm + 1e-6))
                          : 1.0;
  if (tiers_ && tiers_->optimizer_tier() != Tier::kDevice && mode_ == Mode::kTrain &&
      result_.finite()) {
    pending_ = update_args();
  }
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
