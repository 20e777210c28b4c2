#include "runtime/engine/engine.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "runtime/engine/device_access.hpp"
#include "runtime/model/counting_allocator.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/program/check/program_check.hpp"
#include "runtime/program/write/step_writer.hpp"

namespace sluice {

namespace {

bool trains(const EngineOptions& options) { return options.purpose == EnginePurpose::kTrain; }

// offload/device_copies.hpp has what they are for.
LaneHooks hooks_of(DeviceCopies* copies) {
  if (copies == nullptr) return {};
  return {.begins = [copies] { copies->begin_thread(); }, .waited = [copies] { copies->settle(); }};
}

// What the device's allocator says, where it ran out of memory somewhere in the chain: the executor
// wraps an operation's error.
std::optional<std::string> out_of_memory_in(const std::exception& error) {
  if (const auto* found = dynamic_cast<const c10::OutOfMemoryError*>(&error)) {
    return found->what_without_backtrace();
  }
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& inner) {
    return out_of_memory_in(inner);
  }
  return std::nullopt;
}

bool copies_bytes(const Op& op) { return op.lane == Lane::kToHost || op.lane == Lane::kToDevice; }

}  // namespace

bool StepResult::finite() const { return std::isfinite(loss) && std::isfinite(grad_norm); }
bool StepResult::overflowed() const { return std::isfinite(loss) && !std::isfinite(grad_norm); }

Engine::Engine(EngineOptions options, Model model, StepPlan plan, MeshRef comms, at::Device device,
               RowSource train, RowSource valid, PhaseObserver observer)
    : options_(std::move(options)),
      model_(std::move(model)),
      comms_(std::move(comms)),
      world_(comms_->world()),
      data_(comms_->data()),
      device_(device),
      train_rows_(std::move(train)),
      valid_rows_(std::move(valid)),
      observer_(std::move(observer)),
      plan_(std::move(plan)),
      train_program_(trains(options_) ? write_train_step(plan_.shape) : Program{}),
      eval_program_(options_.purpose == EnginePurpose::kGenerate ? Program{}
                                                                 : write_eval_step(plan_.shape)),
      update_program_(trains(options_) ? write_update_step(plan_.shape) : Program{}),
      decode_program_(plan_.decoding ? write_decode_step(*plan_.decoding) : Program{}),
      store_(model_.spec, plan_, data_.rank(), DeviceMemory(device, data_.maps_host_memory())),
      copies_(leaves_device(plan_.shape.placement) ? device_copies(options_.tiers, device)
                                                   : nullptr),
      flights_(static_cast<std::size_t>(plan_.shape.micro_batches)),
      lanes_(hooks_of(copies_.get())) {
  for (Flight& flight : flights_) {
    flight.inputs.resize(plan_.shape.units.size());
    flight.saved.resize(plan_.shape.units.size());
    flight.deferred.resize(plan_.shape.units.size());
    flight.early.resize(plan_.shape.units.size());
    flight.arrived.resize(plan_.shape.units.size());
  }
  const Program* const programs[] = {&train_program_, &eval_program_, &update_program_,
                                     &decode_program_};
  caches_.resize(plan_.shape.units.size());
  std::int64_t arena_bytes = 0;
  for (const Program* program : programs) {
    const std::string fault = find_fault(*program);
    check(fault.empty(), "the step program is sound: " + fault);
    arena_bytes = std::max(arena_bytes, program->arena_bytes);
  }
  return_freed_memory();
  const DeviceMemory memory(device, data_.maps_host_memory());
  arena_ = memory.block(arena_bytes, c10::ScalarType::Byte, BlockUse::kCollective);
  comm_staging_ = memory.block(plan_.shape.comm_staging_bytes - plan_.replica_staging_bytes,
                               c10::ScalarType::Byte, BlockUse::kOwn);
  replica_staging_ =
      DeviceMemory(device, world_.maps_host_memory())
          .block(plan_.replica_staging_bytes / 4, c10::ScalarType::Float, BlockUse::kCollective);
  make_tiers(programs);
  make_first_weights();
  count_groups();
  watch_exchanges();
}

Engine::~Engine() = default;

StepResult Engine::train_step(const StepInput& input) {
  check(trains(options_), "an engine that was made to train is asked for a step");
  failpoint("engine.step");
  input_ = input;
  if (input_.update == 0) input_.update = input.step;
  result_ = {};
  loss_sum_ = 0;
  const std::int64_t io_before = tiers_ ? tiers_->nvme_stats().busy_ns : 0;
  begin_updates();
  const bool speculates = begin_speculation();
  execute_program(train_program_, Mode::kTrain, input.step);
  trained_ = true;
  end_updates();
  end_speculation(speculates);
  result_.times = sum_times();
  if (tiers_) {
    result_.times.io = 1e-6 * static_cast<double>(tiers_->nvme_stats().busy_ns - io_before);
  }
  return result_;
}

void Engine::begin_updates() {
  if (!pending_) return;
  applying_ = *pending_;
  pending_.reset();
  tiers_->set_update(&applying_, std::exchange(kept_, false));
  for (int g = 0; g < store_.size(); ++g) store_.group(g).fresh = plan_.shape.stage == 0;
}

// They are over: whatever runs the step's program again (a search for a NaN) updates nothing.
void Engine::end_updates() {
  if (tiers_) tiers_->set_update(nullptr);
}

// Every rank decides alike: the norm is the same number on all. A run that clips every step loses
// nothing.
bool Engine::next_step_speculates() const {
  constexpr std::int64_t kUnclippedSteps = 4;
  return tiers_ && tiers_->speculates() && unclipped_steps_ >= kUnclippedSteps;
}

bool Engine::next_step_is_whole() const {
  if (!tiers_ || tiers_->optimizer_tier() == Tier::kDevice) return true;
  if (!tiers_->speculates()) return pending_.has_value();
  return pending_ && kept_ && next_step_speculates();
}

bool Engine::begin_speculation() {
  if (!next_step_speculates()) return false;
  speculating_ = {.step = input_.update, .lr = input_.lr, .grad_scale = 1.0 / input_.loss_scale};
  tiers_->set_speculation(&speculating_);
  return true;
}

// What was made early is taken for the pending update only where it is the very same.
void Engine::end_speculation(bool speculated) {
  if (tiers_) tiers_->set_speculation(nullptr);
  const bool clipped = !result_.finite() || clip_coefficient_ != 1.0;
  unclipped_steps_ = clipped ? 0 : unclipped_steps_ + 1;
  kept_ = speculated && !clipped && pending_;
  if (speculated) ++(kept_ ? speculation_counts_.kept : speculation_counts_.redone);
}

void Engine::finish_updates() {
  if (!pending_) return;
  begin_updates();
  execute_program(update_program_, Mode::kUpdate, index_);
  end_updates();
}

void Engine::execute_program(const Program& program, Mode mode, std::int64_t index) {
  program_ = &program;
  mode_ = mode;
  index_ = index;
  if (mode != Mode::kDecode) decoded_ = 0;
  if (mode != Mode::kDecode && mode != Mode::kLogits) {
    rows_at_once_ = options_.train.micro_batch;
    tokens_of_row_ = model_.spec.options.seq;
  }
  sent_.assign(program.buffers.size(), {});
  exchanges_.clear();
  data_ms_ = 0;
  reductions_.assign(program.ops.size(), {});
  gathers_.assign(program.ops.size(), {});
  moves_.assign(program.ops.size(), {});
  marks_.assign(program.ops.size(), {});
  leaving_.clear();
  for (Flight& flight : flights_) flight.input_buffers.assign(plan_.shape.units.size(), -1);
  try {
    execute(program, *this, lanes_, timings_, options_.trace);
  } catch (const std::exception& error) {
    stop_lanes();
    const std::optional<std::string> memory = out_of_memory_in(error);
    if (!memory) throw;
    const Program& held = trains(options_) ? train_program_ : program;
    if (options_.out_of_memory) throw options_.out_of_memory(plan_, held, *memory);
    throw BudgetError("the device ran out of memory in a step: " + *memory);
  } catch (...) {
    stop_lanes();
    throw;
  }
}

// Collectives may be under way into memory that goes with the engine, and lanes may be waiting for
// them.
void Engine::stop_lanes() {
  comms_->abort();
  lanes_.cancel();
}

void Engine::waiting(const Op& op, bool begins) {
  if (observer_) observer_(describe(op), begins);
}

void Engine::enter(const Op& op) {
  if (observer_ && op.lane == Lane::kCompute) {
    observer_(describe(op), op.kind == OpKind::kNormAndScale);
  }
  op_now_ = static_cast<OpId>(index_of(op));
  unbind_slots(op.dead_before);
  bind_slots(op.live);
  if (op.kind == OpKind::kGather) prepare_gather(op);
  if (op.kind == OpKind::kReduceGrads) prepare_reduction(op);
  if (op.kind == OpKind::kReceiveActivation || op.kind == OpKind::kReceiveGradient) {
    prepare_receive(op);
  }
  if (op.kind == OpKind::kSaveInput || op.kind == OpKind::kFetchInput) prepare_move(op);
  if (copies_ && (copies_bytes(op) || op.lane == Lane::kComm)) {
    marks_[index_of(op)] = copies_->mark();
  }
}

void Engine::leave(const Op& op) { unbind_slots(op.dead_after); }

Ticket Engine::run(const Op& op) {
  if (!copies_ || op.lane == Lane::kCompute) return run_here(op);
  const DeviceCopies::Mark mark = std::exchange(marks_[index_of(op)], {});
  if (!copies_bytes(op)) {
    copies_->after(mark);
    return run_here(op);
  }
  CopyScope scope(*copies_, mark);
  const Ticket ticket = run_here(op);
  scope.finish();
  return ticket;
}

Ticket Engine::run_here(const Op& op) {
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
    case OpKind::kBackwardWeights:
      backward_weights(op);
      break;
    case OpKind::kReceiveActivation:
    case OpKind::kReceiveGradient:
      return receive(op);
    case OpKind::kSendActivation:
    case OpKind::kSendGradient:
      return send(op);
    case OpKind::kReduceGrads:
      return reduce_grads(op);
    case OpKind::kAddGrads:
      add_grads(op);
      break;
    case OpKind::kGatherGrads:
      return gather_grads(op);
    case OpKind::kAddReplicas:
      add_replicas(op);
      break;
    case OpKind::kNormAndScale:
      norm_and_scale();
      break;
    case OpKind::kSaveInput:
    case OpKind::kFetchInput:
      move_input(op);
      break;
    case OpKind::kCommit:
      return commit();
    case OpKind::kUpdate:
      if (op.chunk < 0) {
        update(op);
        break;
      }
      [[fallthrough]];
    default:
      return tiers_->run(*program_, op, copies_->address(arena_.data_ptr()));
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
    bind_input(id);
    if (!buffer.in_arena || buffer.tier != Tier::kDevice) continue;
    if (buffer.tag == Tag::kGatheredParameters) store_.bind_params(buffer.group, slot(id));
    if (buffer.tag == Tag::kGradientBuckets) store_.bind_grads(buffer.group, slot(id));
    if (buffer.tag == Tag::kKvCache) {
      caches_[static_cast<std::size_t>(buffer.unit)] =
          arena_.narrow(0, buffer.arena_offset, buffer.bytes)
              .view(scalar_type(plan_.shape.dtype))
              .view({1, -1});
    }
    if (buffer.tag == Tag::kLossHead) {
      scratch_ = arena_.narrow(0, buffer.arena_offset, buffer.bytes);
    }
  }
}

void Engine::unbind_slots(const std::vector<BufferId>& buffers) {
  for (const BufferId id : buffers) {
    const Buffer& buffer = program_->buffers[static_cast<std::size_t>(id)];
    if (buffer.tier != Tier::kDevice) continue;
    sent_[static_cast<std::size_t>(id)].reset();
    unbind_input(id);
    if (!buffer.in_arena) continue;
    if (buffer.tag == Tag::kGatheredParameters) store_.unbind_params(buffer.group);
    if (buffer.tag == Tag::kGradientBuckets) store_.unbind_grads(buffer.group, slot(id));
  }
}

}  // namespace sluice
