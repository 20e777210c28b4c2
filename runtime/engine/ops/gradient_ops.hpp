// Gradients between the units and the update: ReduceGrads, RoundGrads, AddGrads, GatherGrads,
// AddReplicas, the arena slots of full gradients, and the memory of gradients that pass.
//
// enter_reduce() and the slots: executing thread. reduce(): the thread of the comm lane, with
// addresses taken in enter_reduce(). The other operations run on the compute lane, except
// gather(), which runs on the comm lane over buffers that stay in place.
#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_map>
#include <vector>

#include "parallel/comm/communicator.hpp"
#include "runtime/engine/ops/step_parts.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

class StepGraphs;

class GradientOps {
 public:
  GradientOps(const StepParts& parts, StepGraphs& graphs);

  void begin_program();
  void bind(BufferId id);  // a slot, or memory of gradients that pass
  void unbind(BufferId id);
  void enter_reduce(const Op& op);
  [[nodiscard]] Ticket reduce(const Op& op);
  void round(const Op& op);        // RoundGrads
  void add_streams(const Op& op);  // AddGrads
  [[nodiscard]] Ticket gather(const Op& op);
  void add_replicas(const Op& op);
  // Before the host reads gradients: waits for those that add_replicas() sent to it from a GPU.
  void settle_replicas();

 private:
  // Elements of a group's owned gradients, and the ranks of the group that hold them too.
  struct ReplicaPiece {
    int group = 0;
    std::int64_t begin = 0;
    std::int64_t elems = 0;
    int first = 0;
    int replicas = 1;
  };
  [[nodiscard]] void* pass(BufferId id);
  [[nodiscard]] std::int64_t sum_in_place(Communicator& comm, int g, std::int64_t owned);
  void add_on_host(Communicator& comm, const ReplicaPiece& piece);
  void add_on_gpu(Communicator& comm, const ReplicaPiece& piece);
  [[nodiscard]] bool on_host() const;
  // Gradients of replicas, which are fp32 on every tier (gradient_dtype()).
  [[nodiscard]] float* on_host_fp32(const ReplicaPiece& piece) const;
  [[nodiscard]] bool is_there(const float* input, const float* output) const;

  const EngineSetup& setup_;
  const ProgramMemory& memory_;
  StepRun& run_;
  GroupStore& store_;
  TierStore* const tiers_;
  DeviceCopies* const copies_;
  StepGraphs& graphs_;
  std::unordered_map<BufferId, at::Tensor> passing_;     // alive; none where a graph is launched
  bool returning_ = false;                               // copies to the host are under way
  std::vector<std::vector<ReduceScatterPiece>> pieces_;  // by operation
};

}  // namespace sluice
