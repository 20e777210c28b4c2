// Graphs of training steps: a segment of compute operations (graph_segments.hpp) is recorded once
// and launched as a whole in later steps.
//
// clang-format off
//   eager --next step--> recorded segment by segment, each launched --> launched --> launched ...
//                          ^                                               |
//                          '--- another program ran, or outgrown documents -'
// clang-format on
//
// A recorded kernel keeps its addresses and numbers. Parameters, gradients and slots of the arena
// have a fixed place at each operation of the program, batches have buffers of their own
// (BatchOps), all other tensors of units come from the graphs' pool, passing gradients too. A step
// is recorded as a whole and in order, so no two tensors that live at a time share memory. Other
// programs and eager steps take from the same pool: a run reserves no more than without graphs.
// They may leave tensors there (constants, workspaces), hence the graphs from before are dropped.
// The first step is eager, because libraries make such tensors in it.
//
// StepOps::enter() may enqueue zeros for the padding of full gradients. Those of a segment's first
// operation run before the graph. The graph contains those of the other operations, and a launched
// step also enqueues them behind the graph. Their memory is not reused before the next wait, so the
// zeros overwrite nothing else.
//
// Numbers that change from step to step are read from device memory (StepScalars), and so are
// documents of rows. Recorded calls of attention have room for a number of documents
// (Documents::room); a step with more is recorded again.
//
// Messages between pipeline stages are not recorded. Their tensors come from the pool too, and a
// launched step sends from and receives into the places of the recorded step: a message stands at
// the same place among the compute operations, and waits for what the compute stream had then.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/engine/device_graphs.hpp"
#include "runtime/engine/ops/step_run.hpp"
#include "runtime/program/graph_segments.hpp"

namespace sluice {

// What a message between stages is sent from or received into, or a buffer's memory.
struct PipeMessage {
  void* data = nullptr;
  std::int64_t bytes = 0;
};

class StepGraphs {
 public:
  // `graphs`: null where every operation runs eagerly. `outgrown`: called before the first unit or
  // message of a training step; whether recorded work has too little room for its documents. All
  // outlive the object.
  StepGraphs(const StepRun& run, DeviceGraphs* graphs, std::function<bool()> outgrown)
      : run_(run), graphs_(graphs), outgrown_(std::move(outgrown)) {}

  void begin_program() { decided_ = false; }
  // Runs a compute operation of a segment by `body`, or records it, or launches its segment's
  // graph at the segment's first operation.
  void run(const Op& op, const std::function<void()>& body);
  // The memory of a message: of the tensor that `make` makes, or the recorded one.
  [[nodiscard]] PipeMessage message(const Op& op, const std::function<at::Tensor()>& make);
  // The same of a buffer of the program that comes to life before its operation runs.
  [[nodiscard]] void* buffer(BufferId id, const std::function<at::Tensor()>& make);

 private:
  enum class How { kEager, kRecord, kLaunch };
  using Places = std::unordered_map<int, PipeMessage>;  // by operation or buffer

  [[nodiscard]] PipeMessage place(Places& recorded, int id,
                                  const std::function<at::Tensor()>& make);
  void decide();
  void run_eagerly(const Op& op, const std::function<void()>& body);
  void record(OpId id, const std::function<void()>& body);

  const StepRun& run_;
  DeviceGraphs* const graphs_;
  const std::function<bool()> outgrown_;
  bool decided_ = false;  // of the program that runs
  How how_ = How::kEager;
  std::vector<GraphSegment> segments_;                  // of the training program
  std::size_t segment_ = 0;                             // that of the operation that runs
  std::vector<std::unique_ptr<DeviceGraph>> recorded_;  // by segment; empty: none
  std::optional<Recording> recording_;
  Places messages_, buffers_;  // of the recorded step
  bool has_trained_ = false;   // a training step has run
};

}  // namespace sluice
