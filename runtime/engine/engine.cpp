#include "runtime/engine/engine.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "kernels/base/error.hpp"
#include "kernels/base/failpoint.hpp"
#include "runtime/engine/adamw_step.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/program/program_check.hpp"
#include "runtime/program/step_writer.hpp"

namespace sluice {

bool StepResult::finite() const { return std::isfinite(loss) && std::isfinite(grad_norm); }
bool StepResult::overflowed() const { return std::isfinite(loss) && !std::isfinite(grad_norm); }

// Routes a unit's gradients into the groups' gradient buffers.
class Engine::Sink final : public GradSink {
 public:
  Sink(GroupStore& store, const UnitSpec& unit, bool accumulate)
      : store_(store), unit_(unit), accumulate_(accumulate) {}
  GradTarget target(int index) override {
    const ParamRef& ref = unit_.params[static_cast<std::size_t>(index)];
    GroupState& group = store_.group(ref.group);
    const auto i = static_cast<std::size_t>(ref.index);
    const bool add = accumulate_ || group.grad_written[i];
    group.grad_written[i] = true;
    return {group.grads[i], add};
  }

 private:
  GroupStore& store_;
  const UnitSpec& unit_;
  const bool accumulate_;
};

Engine::Engine(EngineOptions options, Model model, Communicator& comm, at::Device device,
               RowSource train, RowSource valid, PhaseObserver observer)
    : options_(std::move(options)),
      model_(std::move(model)),
      comm_(comm),
      device_(device),
      train_rows_(std::move(train)),
      valid_rows_(std::move(valid)),
      observer_(std::move(observer)),
      plan_(plan_step(options_, model_)),
      train_program_(write_train_step(plan_.shape)),
      eval_program_(write_eval_step(plan_.shape)),
      store_(model_.spec, plan_, comm.rank(), device, options_.train.seed),
      inputs_(plan_.shape.units.size()),
      saved_(plan_.shape.units.size()) {
  for (const Program* program : {&train_program_, &eval_program_}) {
    const std::string fault = find_fault(*program);
    check(fault.empty(), "the step program is sound: " + fault);
  }
  arena_ = empty_tensor({std::max(train_program_.arena_bytes, eval_program_.arena_bytes)},
                        c10::ScalarType::Byte, device);
  comm_staging_ = empty_tensor({plan_.shape.comm_staging_bytes}, c10::ScalarType::Byte, device);
}

Engine::~Engine() = default;

StepResult Engine::train_step(const StepInput& input) {
  failpoint("engine.step");
  input_ = input;
  if (input_.update == 0) input_.update = input.step;
  result_ = {};
  loss_sum_ = 0;
  execute_program(train_program_, Mode::kTrain, input.step);
  result_.times = sum_times();
  return result_;
}

void Engine::execute_program(const Program& program, Mode mode, std::int64_t index) {
  program_ = &program;
  mode_ = mode;
  index_ = index;
  op_index_ = 0;
  data_ms_ = 0;
  try {
    execute(program, *this, timings_);
  } catch (...) {
    // Collectives may be under way into memory that goes with the engine.
    comm_.abort();
    throw;
  }
}

void Engine::waiting(const Op& op, bool begins) {
  if (observer_) observer_(describe(op), begins);
}

Ticket Engine::run(const Op& op) {
  if (observer_) observer_(describe(op), op.kind == OpKind::kNormAndScale);
  unbind_slots(op.dead_before);
  bind_slots(op.live);
  Ticket ticket = dispatch(op);
  unbind_slots(op.dead_after);
  ++op_index_;
  return ticket;
}

Ticket Engine::dispatch(const Op& op) {
  switch (op.kind) {
    case OpKind::kLoadBatch:
      load_batch(op);
      break;
    case OpKind::kGather:
      return gather(op);
    case OpKind::kRelease:
      break;  // its slot dies with it
    case OpKind::kForward:
      forward(op);
      break;
    case OpKind::kLossHead:
      loss_head(op);
      break;
    case OpKind::kBackward:
      backward(op);
      break;
    case OpKind::kReduceGrads:
      return reduce_grads(op);
    case OpKind::kGatherGrads:
      return gather_grads(op);
    case OpKind::kNormAndScale:
      norm_and_scale();
      break;
    case OpKind::kUpdate:
      update(op);
      break;
  }
  return {};
}

char* Engine::slot(BufferId buffer) const {
  return static_cast<char*>(arena_.data_ptr()) +
         program_->buffers[static_cast<std::size_t>(buffer)].arena_offset;
}

void Engine::bind_slots(const std::vector<BufferId>& buffers) {
  for (const BufferId id : buffers) {
    const Buffer& buffer = program_->buffers[static_cast<std::size_t>(id)];
    if (!buffer.in_arena) continue;
    if (buffer.tag == Tag::kGatheredParameters) store_.bind_params(buffer.group, slot(id));
    if (buffer.tag == Tag::kGradientBuckets) store_.bind_grads(buffer.group, slot(id));
    if (buffer.tag == Tag::kLossHead) {
      scratch_ = arena_.narrow(0, buffer.arena_offset, buffer.bytes);
    }
  }
}

void Engine::unbind_slots(const std::vector<BufferId>& buffers) {
  for (const BufferId id : buffers) {
    const Buffer& buffer = program_->buffers[static_cast<std::size_t>(id)];
    if (!buffer.in_arena) continue;
    if (buffer.tag == Tag::kGatheredParameters) store_.unbind_params(buffer.group);
    if (buffer.tag == Tag::kGradientBuckets) store_.unbind_grads(buffer.group);
  }
}

// Row order of the global batch: micro-batch, then rank.
std::int64_t Engine::first_row(const Op& op) const {
  const std::int64_t m =
      mode_ == Mode::kEvaluate ? index_ % plan_.shape.micro_batches : op.micro_batch;
  return (m * comm_.size() + comm_.rank()) * options_.train.micro_batch;
}

UnitCall Engine::call_of(const Op& op) const {
  return {.training = mode_ == Mode::kTrain || mode_ == Mode::kDiagnose,
          .seed = options_.train.seed,
          .step = index_,
          .first_sample = mode_ == Mode::kLogits ? 0 : first_row(op)};
}

void Engine::load_batch(const Op& op) {
  const auto begin = std::chrono::steady_clock::now();
  for (int g = 0; g < store_.size(); ++g) {
    std::vector<bool>& written = store_.group(g).grad_written;
    std::fill(written.begin(), written.end(), false);
  }
  if (mode_ != Mode::kLogits) {
    SampleRows rows;
    const bool train = mode_ != Mode::kEvaluate;
    const std::int64_t index = train ? index_ : index_ / plan_.shape.micro_batches;
    (train ? train_rows_ : valid_rows_)(index, first_row(op), options_.train.micro_batch, rows);
    const auto to_tensor = [&](const std::vector<std::int64_t>& values) {
      const at::Tensor host = empty_tensor({options_.train.micro_batch, model_.spec.options.seq},
                                           c10::ScalarType::Long);
      check(values.size() == static_cast<std::size_t>(host.numel()), "rows are of the model's seq");
      std::copy(values.begin(), values.end(), host_data<std::int64_t>(host));
      return host.to(device_);
    };
    tokens_ = to_tensor(rows.tokens);
    targets_ = to_tensor(rows.targets);
  }
  inputs_[0] = tokens_;
  data_ms_ +=
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

Ticket Engine::gather(const Op& op) {
  GroupState& group = store_.group(op.group);
  if (group.fresh) return {};  // resident, and not updated since the last gather
  group.fresh = plan_.shape.groups[static_cast<std::size_t>(op.group)].resident;
  const std::int64_t elems = group.shard.numel();
  return comm_.all_gather({{group.shard.data_ptr(), group.window.data_ptr(), elems, elems}},
                          plan_.shape.dtype);
}

void Engine::forward(const Op& op) {
  const auto u = static_cast<std::size_t>(op.unit);
  at::Tensor output = model_.units[u]->forward(call_of(op), store_.unit_params(op.unit), inputs_[u],
                                               op.save ? &saved_[u] : nullptr);
  if (failpoint("engine.forward." + std::to_string(index_) + "." + std::to_string(op.unit)) ==
      FailpointOutcome::kPoison) {
    output.fill_(std::numeric_limits<double>::quiet_NaN());
  }
  look_for_non_finite(output);
  inputs_[u + 1] = std::move(output);
  if (mode_ == Mode::kEvaluate || mode_ == Mode::kLogits) inputs_[u].reset();
}

void Engine::loss_head(const Op& op) {
  const auto u = static_cast<std::size_t>(op.unit);
  const std::vector<at::Tensor>& params = store_.unit_params(op.unit);
  if (mode_ == Mode::kLogits) {
    logits_ = model_.head->logits(params, inputs_[u], inputs_[u].size(1) - 1);
  } else {
    const double tokens = static_cast<double>(plan_.shape.micro_batches * comm_.size()) *
                          static_cast<double>(options_.train.micro_batch * model_.spec.options.seq);
    Sink sink(store_, model_.spec.units[u], op.accumulate);
    loss_sum_ +=
        model_.head->loss(params, inputs_[u], targets_, input_.loss_scale / tokens, scratch_,
                          op.save ? &sink : nullptr, op.save ? &gradient_ : nullptr);
    if (op.save) look_for_non_finite(gradient_);
  }
  inputs_[u].reset();
  if (!op.save) {
    tokens_.reset();
    targets_.reset();
  }
}

void Engine::backward(const Op& op) {
  const auto u = static_cast<std::size_t>(op.unit);
  Sink sink(store_, model_.spec.units[u], op.accumulate);
  gradient_ = model_.units[u]->backward(call_of(op), store_.unit_params(op.unit), inputs_[u],
                                        std::move(saved_[u]), gradient_, sink);
  inputs_[u].reset();
  if (mode_ == Mode::kDiagnose) {
    if (gradient_.defined()) look_for_non_finite(gradient_);
    for (const ParamRef& ref : model_.spec.units[u].params) {
      look_for_non_finite(store_.group(ref.group).grads[static_cast<std::size_t>(ref.index)]);
    }
  }
  if (op.unit == 0) {
    tokens_.reset();
    targets_.reset();
  }
}

Ticket Engine::reduce_grads(const Op& op) {
  std::vector<ReduceScatterPiece> pieces;
  for (const BucketPiece& piece : program_->buckets[static_cast<std::size_t>(op.bucket)]) {
    GroupState& group = store_.group(piece.group);
    pieces.push_back({group.grad_full.data_ptr<float>() + piece.begin,
                      group.grad_shard.data_ptr<float>() + piece.begin, piece.elems,
                      group.grad_shard.numel(), op.accumulate});
  }
  return comm_.reduce_scatter(std::move(pieces), DType::kFloat32, comm_staging_.data_ptr());
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

// The norm is the sum over groups, then shards, of each shard's sum of squares: the same numbers in
// the same order on every stage.
void Engine::norm_and_scale() {
  std::vector<double> mine{loss_sum_, input_.vote};
  constexpr std::size_t kFirstSum = 2;
  for (int g = 0; g < store_.size(); ++g) {
    const GroupState& group = store_.group(g);
    const std::vector<double> sums = shard_sum_squares(group.grad_owned, group.grad_shard.numel());
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
}

void Engine::update(const Op& op) {
  if (mode_ == Mode::kDiagnose || !result_.finite()) return;
  GroupState& group = store_.group(op.group);
  update_shard(group, options_.optimizer,
               {.step = input_.update,
                .lr = input_.lr,
                .grad_scale = clip_coefficient_ / input_.loss_scale});
  group.fresh = plan_.shape.stage == 0;
}

void Engine::look_for_non_finite(const at::Tensor& value) {
  if (mode_ != Mode::kDiagnose || first_non_finite_ >= 0) return;
  if (!all_finite(value)) first_non_finite_ = op_index_;
}

}  // namespace sluice
