#include "runtime/engine/engine.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.hpp"
#include "kernels/base/failpoint.hpp"
#include "runtime/model/counting_allocator.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/program/program_check.hpp"
#include "runtime/program/step_writer.hpp"

namespace sluice {

namespace {

bool trains(const EngineOptions& options) { return options.purpose == EnginePurpose::kTrain; }

}  // namespace

bool StepResult::finite() const { return std::isfinite(loss) && std::isfinite(grad_norm); }
bool StepResult::overflowed() const { return std::isfinite(loss) && !std::isfinite(grad_norm); }

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
      train_program_(trains(options_) ? write_train_step(plan_.shape) : Program{}),
      eval_program_(options_.purpose == EnginePurpose::kGenerate ? Program{}
                                                                 : write_eval_step(plan_.shape)),
      update_program_(trains(options_) ? write_update_step(plan_.shape) : Program{}),
      decode_program_(plan_.decoding ? write_decode_step(*plan_.decoding) : Program{}),
      store_(model_.spec, plan_, comm.rank(), DeviceMemory(device, comm.maps_host_memory())),
      flights_(static_cast<std::size_t>(plan_.shape.micro_batches)) {
  for (Flight& flight : flights_) {
    flight.inputs.resize(plan_.shape.units.size());
    flight.saved.resize(plan_.shape.units.size());
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
  const DeviceMemory memory(device, comm.maps_host_memory());
  arena_ = memory.block(arena_bytes, c10::ScalarType::Byte, BlockUse::kCollective);
  comm_staging_ =
      memory.block(plan_.shape.comm_staging_bytes, c10::ScalarType::Byte, BlockUse::kOwn);
  if (leaves_device(plan_.shape.placement)) {
    tiers_ = std::make_unique<TierStore>(plan_, options_.optimizer, programs, store_, comm.rank(),
                                         options_.train.seed, options_.tiers);
  }
  // In pieces: a group may be a good part of the memory there is.
  constexpr std::int64_t kDrawnAtOnce = 1 << 20;
  for (int g = 0; g < store_.size(); ++g) {
    const std::int64_t owned = owned_elems(plan_.shape, g);
    for (std::int64_t begin = 0; begin < owned; begin += kDrawnAtOnce) {
      if (observer_) observer_("first weights", false);  // may be read, from a slow disk
      const std::int64_t elems = std::min(kDrawnAtOnce, owned - begin);
      write_owned(g, begin,
                  draw_owned(model_.spec, plan_, g, comm.rank(), begin, elems, options_.train.seed,
                             options_.initial_weights));
    }
  }
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
  execute_program(train_program_, Mode::kTrain, input.step);
  end_updates();
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
  tiers_->set_update(&applying_);
  for (int g = 0; g < store_.size(); ++g) store_.group(g).fresh = plan_.shape.stage == 0;
}

// They are over: whatever runs the step's program again (a search for a NaN) updates nothing.
void Engine::end_updates() {
  if (tiers_) tiers_->set_update(nullptr);
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
  data_ms_ = 0;
  reductions_.assign(program.ops.size(), {});
  gathers_.assign(program.ops.size(), {});
  try {
    execute(program, *this, lanes_, timings_, options_.trace);
  } catch (...) {
    // Collectives may be under way into memory that goes with the engine, and lanes may be waiting
    // for them.
    comm_.abort();
    lanes_.cancel();
    throw;
  }
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
  if (op.kind == OpKind::kFetchInput) {
    take_input_back(flight(op), static_cast<std::size_t>(op.unit));
  }
}

void Engine::leave(const Op& op) { unbind_slots(op.dead_after); }

Ticket Engine::run(const Op& op) {
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
    case OpKind::kAddGrads:
      add_grads(op);
      break;
    case OpKind::kGatherGrads:
      return gather_grads(op);
    case OpKind::kNormAndScale:
      norm_and_scale();
      break;
    case OpKind::kSaveInput:
    case OpKind::kFetchInput:
      move_input(op);
      break;
    case OpKind::kUpdate:
      if (op.chunk < 0) {
        update(op);
        break;
      }
      [[fallthrough]];
    default:
      return tiers_->run(*program_, op, static_cast<std::byte*>(arena_.data_ptr()));
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
    if (buffer.unit >= 0 && buffer.tag == Tag::kActivations) {
      let_input_go(flights_[static_cast<std::size_t>(buffer.micro_batch)],
                   static_cast<std::size_t>(buffer.unit));
    }
    if (!buffer.in_arena) continue;
    if (buffer.tag == Tag::kGatheredParameters) store_.unbind_params(buffer.group);
    if (buffer.tag == Tag::kGradientBuckets) store_.unbind_grads(buffer.group, slot(id));
  }
}

}  // namespace sluice
