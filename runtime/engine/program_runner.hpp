// Executes one program at a time: hands each operation to its handler on the thread of its lane,
// tells the watchdog what the rank does, and orders copies after the compute stream.
//
// On a GPU with copies on other threads, the executing thread enqueues at most a few units ahead of
// the GPU. A driver has room for about a thousand kernels. A thread that finds none waits within
// the driver, and every call of the threads that copy waits with it: on an H200 early updates in
// layer order began 1.1 s late for that reason (docs/benchmarks-gpu.md).
//
// After an exception all communicators of the rank are aborted and the lanes have stopped; nothing
// can be executed any more.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "offload/device_copies.hpp"
#include "runtime/engine/ops/step_run.hpp"
#include "runtime/program/executor.hpp"
#include "runtime/program/graph_segments.hpp"

namespace sluice {

class StepOps;
struct EnginePrograms;

// Called before each operation with its name, and with `waiting` set while the rank only waits for
// other ranks or lanes.
using PhaseObserver = std::function<void(const std::string& phase, bool waiting)>;

class ProgramRunner final : private OpHandler {
 public:
  // `copies`: null on a CPU where everything lives on the device.
  ProgramRunner(const EngineSetup& setup, const EnginePrograms& programs, StepRun& run,
                StepOps& ops, DeviceCopies* copies, PhaseObserver observer);

  // `index`: StepRun's. Throws what an operation throws, with the operation's name; BudgetError
  // where the device ran out of memory.
  void execute(const Program& program, RunMode mode, std::int64_t index);
  void execute(const Program& program, RunMode mode, std::int64_t index, BatchSize size);

 private:
  void enter(const Op& op) override;
  void stay_near(const Op& op);
  void end_segment();
  Ticket run(const Op& op) override;
  void leave(const Op& op) override;
  void waiting(const Op& op, bool begins) override;
  [[nodiscard]] bool watches_end(const Op& op) const override;
  void completed(const Op& op) override;
  [[nodiscard]] Ticket run_on_lane(const Op& op);
  void stop_lanes();
  void watch_exchanges();

  const EngineSetup& setup_;
  const EnginePrograms& programs_;
  StepRun& run_;
  StepOps& ops_;
  DeviceCopies* const copies_;
  const PhaseObserver observer_;
  OpWatch* const watch_;  // may be null
  // By operation of another thread: how far the compute stream was filled when the operation was
  // handed over.
  std::vector<DeviceCopies::Mark> marks_;
  struct Segment {
    int ops = 0;
    Ticket end;
  };
  bool stays_near_ = false;    // in the program that runs
  SegmentWalk walk_{0};        // as graph_segments(), so that no wait falls into a recorded graph
  int segment_ops_ = 0;        // of the segment that goes on
  std::deque<Segment> ahead_;  // segments that the GPU may still have to run
  int ops_ahead_ = 0;          // in them
  LaneThreads lanes_;          // last: its threads use the others
};

}  // namespace sluice
