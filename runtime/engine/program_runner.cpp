#include "runtime/engine/program_runner.hpp"

#include <exception>
#include <optional>
#include <utility>

#include "runtime/engine/engine_programs.hpp"
#include "runtime/engine/ops/step_ops.hpp"

namespace sluice {
namespace {

// offload/device_copies.hpp says why lanes need both.
LaneHooks hooks_of(DeviceCopies* copies) {
  if (copies == nullptr) return {};
  return {.begins = [copies] { copies->begin_thread(); }, .waited = [copies] { copies->settle(); }};
}

// cuBLAS and cuDNN have statuses of their own for a full device, which libtorch gives as text.
bool has_full_status(const c10::Error& error) {
  const auto says = [&](const char* status) {
    return error.msg().find(status) != std::string::npos;
  };
  return says("_STATUS_ALLOC_FAILED") || says("_DEVICE_ALLOCATION_FAILED");
}

// Message of the device's allocator, of a library, or of a driver that has no room for a kernel's
// code, if the chain of causes has one: the executor wraps the error of an operation.
std::optional<std::string> out_of_memory_in(const std::exception& error) {
  constexpr int kMemoryAllocation = 2;  // cudaErrorMemoryAllocation
  if (const auto* found = dynamic_cast<const c10::OutOfMemoryError*>(&error)) {
    return found->what_without_backtrace();
  }
  const auto* driver = dynamic_cast<const c10::AcceleratorError*>(&error);
  if (driver != nullptr && driver->get_error_code() == kMemoryAllocation) {
    return driver->what_without_backtrace();
  }
  const auto* library = dynamic_cast<const c10::Error*>(&error);
  if (library != nullptr && has_full_status(*library)) return library->what_without_backtrace();
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& inner) {
    return out_of_memory_in(inner);
  }
  return std::nullopt;
}

std::string name_of(RunMode mode, std::int64_t index) {
  const std::string number = " " + std::to_string(index);
  switch (mode) {
    case RunMode::kTrain:
      return "step" + number;
    case RunMode::kEvaluate:
      return "evaluation, micro-batch" + number;
    case RunMode::kLosses:
      return "losses, micro-batch" + number;
    case RunMode::kLogits:
      return "logits";
    case RunMode::kDecode:
      return "decode from position" + number;
    case RunMode::kDiagnose:
      return "diagnosis of step" + number;
    case RunMode::kUpdate:
      return "deferred update";
  }
  return "";
}

// The range of a whole program, also of one that fails.
class WatchedProgram {
 public:
  WatchedProgram(OpWatch* watch, RunMode mode, std::int64_t index) : watch_(watch) {
    if (watch_ != nullptr) watch_->program_begins(name_of(mode, index));
  }
  ~WatchedProgram() {
    if (watch_ != nullptr) watch_->program_ends();
  }
  WatchedProgram(const WatchedProgram&) = delete;
  WatchedProgram& operator=(const WatchedProgram&) = delete;

 private:
  OpWatch* const watch_;
};

// Operations of units that the executing thread may be ahead of a GPU when it begins a segment.
constexpr int kOpsAhead = kSegmentOpsBesideCopies;

bool copies_bytes(const Op& op) { return op.lane == Lane::kToHost || op.lane == Lane::kToDevice; }

}  // namespace

ProgramRunner::ProgramRunner(const EngineSetup& setup, const EnginePrograms& programs, StepRun& run,
                             StepOps& ops, DeviceCopies* copies, PhaseObserver observer)
    : setup_(setup),
      programs_(programs),
      run_(run),
      ops_(ops),
      copies_(copies),
      observer_(std::move(observer)),
      watch_(setup.options.watch.get()),
      lanes_(hooks_of(copies)) {
  watch_exchanges();
}

// Units run on the executing thread, so an exchange belongs to the operation entered last.
void ProgramRunner::watch_exchanges() {
  if (!setup_.options.trace || !setup_.model.tensor) return;
  setup_.model.tensor->watch([&run = run_](const TensorGroup::Timed& e) {
    run.exchanges.push_back(
        {run.entered, std::string(e.name), e.what, e.started, e.needed, e.finished});
  });
}

void ProgramRunner::execute(const Program& program, RunMode mode, std::int64_t index) {
  execute(program, mode, index, setup_.micro_batch());
}

void ProgramRunner::execute(const Program& program, RunMode mode, std::int64_t index,
                            BatchSize size) {
  run_.begin_program(program, mode, index, size);
  marks_.assign(program.ops.size(), {});
  const int most_ops = most_ops_of_segment(program);
  stays_near_ = copies_ != nullptr && setup_.device.is_cuda() && most_ops > 0;
  walk_ = SegmentWalk(most_ops);
  segment_ops_ = 0;
  const WatchedProgram watched(watch_, mode, index);
  try {
    ops_.begin_program();
    sluice::execute(program, *this, lanes_, run_.timings);
    ops_.end_program();
  } catch (const std::exception& error) {
    stop_lanes();
    const std::optional<std::string> memory = out_of_memory_in(error);
    if (!memory) throw;
    const Program& held = setup_.trains() ? programs_.train : program;
    if (setup_.options.out_of_memory) {
      throw setup_.options.out_of_memory(setup_.plan, held, *memory);
    }
    throw BudgetError("the device ran out of memory in a step: " + *memory);
  } catch (...) {
    stop_lanes();
    throw;
  }
}

// Collectives may still use memory that the engine is about to free, and lanes may wait for
// collectives.
void ProgramRunner::stop_lanes() {
  setup_.comms->abort();
  lanes_.cancel();
}

void ProgramRunner::waiting(const Op& op, bool begins) {
  if (begins) ops_.waits(op);
  if (observer_) observer_(describe(op), begins);
  if (watch_ == nullptr) return;
  if (begins) {
    watch_->wait_begins(op);
  } else {
    watch_->wait_ends();
  }
}

// The waits cost nothing: the GPU has work, and the thread sleeps.
void ProgramRunner::stay_near(const Op& op) {
  const SegmentWalk::Place place = walk_.enter(op);
  const bool begins = place == SegmentWalk::Place::kBegins;
  if (begins || !walk_.open()) end_segment();
  if (place == SegmentWalk::Place::kOutside) return;
  ++segment_ops_;
  while (begins && ops_ahead_ > kOpsAhead && ahead_.size() > 1) {
    if (!ahead_.front().end.done()) ahead_.front().end.wait();
    ops_ahead_ -= ahead_.front().ops;
    ahead_.pop_front();
  }
}

void ProgramRunner::end_segment() {
  if (segment_ops_ == 0) return;
  ops_ahead_ += segment_ops_;
  ahead_.push_back({std::exchange(segment_ops_, 0), copies_->begun()});
}

void ProgramRunner::enter(const Op& op) {
  if (stays_near_) stay_near(op);
  if (observer_ && op.lane == Lane::kCompute) {
    observer_(describe(op), meets_all(op.kind));
  }
  const std::size_t i = run_.index_of(op);
  run_.entered = static_cast<OpId>(i);
  ops_.enter(op);
  if (copies_ != nullptr && (copies_bytes(op) || op.lane == Lane::kComm)) {
    marks_[i] = copies_->mark();
  }
}

void ProgramRunner::leave(const Op& op) { ops_.leave(op); }

// On a GPU a thread that waits for a collective would wait for a stream: events have its times.
bool ProgramRunner::watches_end(const Op& op) const {
  if (setup_.device.is_cuda() && op.lane != Lane::kDisk) return false;
  return setup_.options.trace || watch_ != nullptr;
}

void ProgramRunner::completed(const Op& op) {
  if (watch_ != nullptr) watch_->completed(op);
}

Ticket ProgramRunner::run(const Op& op) {
  if (watch_ == nullptr) return run_on_lane(op);
  watch_->begin(op, watches_end(op));
  try {
    Ticket ticket = run_on_lane(op);
    watch_->end();
    return ticket;
  } catch (...) {
    watch_->end();
    throw;
  }
}

Ticket ProgramRunner::run_on_lane(const Op& op) {
  if (copies_ == nullptr || op.lane == Lane::kCompute) return ops_.run(op);
  const DeviceCopies::Mark mark = std::exchange(marks_[run_.index_of(op)], {});
  if (!copies_bytes(op)) {
    copies_->after(mark);
    return ops_.run(op);
  }
  CopyScope scope(*copies_, mark);
  const Ticket ticket = ops_.run(op);
  scope.finish();
  return ticket;
}

}  // namespace sluice
