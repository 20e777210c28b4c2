// The plan of a run: its program, the memory of each tier, and the step time. Values.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/index.hpp"
#include "runtime/plan/phase_memory.hpp"
#include "runtime/plan/plan_text.hpp"
#include "runtime/plan/wires.hpp"
#include "runtime/program/model/time_model.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

// The plan of a pipeline stage's first tensor-parallel rank, which needs most memory of the stage.
struct StagePlan {
  int stage = 0;
  StepShape shape;
  Program program;
  MemoryPlan memory;  // as the run checks it
  std::array<PhasePeaks, static_cast<std::size_t>(kTierCount)> phases{};
  std::int64_t pinned = 0;  // host bytes that a GPU's copies read and write
  TimeReport time;          // scheduled together with the other stages
  Traffic traffic;
  double bubble = 0;                  // share of the step in which the rank waits for other stages
  int in_flight = 1;                  // most flights of the rank at one time
  std::int64_t activation_bytes = 0;  // at the device's peak
  std::int64_t params_held = 0;       // including replicas
  std::vector<std::string> unit_names;

  [[nodiscard]] std::int64_t peak(Tier tier) const { return memory.of(tier).peak; }
  // With NCCL's buffers on the device.
  [[nodiscard]] std::int64_t need(Tier tier) const { return memory.of(tier).need(); }
  // Bytes that plan_memory() adds to the program's, in every phase.
  [[nodiscard]] std::int64_t beside_program(Tier tier) const {
    std::int64_t highest = 0;
    for (const PhaseMemory& phase : nth(phases, tier)) highest = std::max(highest, phase.peak);
    return peak(tier) - highest;
  }
  [[nodiscard]] std::int64_t missing() const { return memory.missing(); }
};

// Sums over the ranks of the node whose devices hold most.
struct NodePlan {
  int ranks = 1;
  TierBytes peak{};
  std::int64_t pinned = 0;
  Traffic traffic;
};

// The base is the stage that needs most memory, which decides whether the run fits.
struct RunPlan : StagePlan {
  std::vector<StagePlan> stages;  // all stages in order; the base's stage without its program
  NodePlan node;
  MeshWires wires;
  int ranks = 1;
  int nodes = 1;
  ParallelOptions mesh;     // `data` is filled in
  std::int64_t params = 0;  // of the model; replicas count once
  std::int64_t frozen_params = 0;
  std::int64_t tokens_per_step = 0;
  double model_flops_per_step = 0;
  double peak_flops = 0;  // FLOP/s of all ranks

  // REQUIRES: `one` is one of `stages`.
  [[nodiscard]] const Program& program_of(const StagePlan& one) const {
    return one.stage == stage ? program : one.program;
  }
  [[nodiscard]] bool fits() const { return missing() == 0; }
  // Share of all ranks' time in which the ranks wait for other stages.
  [[nodiscard]] double bubble_share() const {
    double sum = 0;
    for (const StagePlan& one : stages) sum += one.bubble;
    return stages.empty() ? 0 : sum / static_cast<double>(stages.size());
  }
  // Longest compute time of a stage over the mean of all stages, minus 1.
  [[nodiscard]] double imbalance() const {
    double longest = 0;
    double sum = 0;
    for (const StagePlan& one : stages) {
      const double busy = nth(one.time.busy, Lane::kCompute);
      longest = std::max(longest, busy);
      sum += busy;
    }
    return sum > 0 ? longest * static_cast<double>(stages.size()) / sum - 1 : 0;
  }
  [[nodiscard]] double tokens_per_s() const {
    return time.step_s > 0 ? static_cast<double>(tokens_per_step) / time.step_s : 0;
  }
  // Fewest steps that train on at least `tokens` tokens.
  [[nodiscard]] double steps_for(std::int64_t tokens) const {
    return tokens_per_step > 0
               ? std::ceil(static_cast<double>(tokens) / static_cast<double>(tokens_per_step))
               : 0;
  }
  // Bytes that a node writes to NVMe in a step.
  [[nodiscard]] double node_written() const {
    return static_cast<double>(node.traffic.disk_written);
  }
  // Seconds until a node has written `endurance_bytes` to one drive; 0: nothing is written.
  [[nodiscard]] double drive_seconds(double endurance_bytes) const {
    return node_written() > 0 ? endurance_bytes / node_written() * time.step_s : 0;
  }
  [[nodiscard]] double mfu() const {
    const double most = time.step_s * peak_flops;
    return most > 0 ? model_flops_per_step / most : 0;
  }
};

// Ranks with similar plans: of the first, the middle or the last stages.
struct RankClass {
  std::string name;  // "first", "middle", "last"; "all" without a pipeline
  int stages = 1;
  int ranks = 1;
  const StagePlan* worst = nullptr;  // largest of these stages; points into RunPlan::stages
};
[[nodiscard]] std::vector<RankClass> rank_classes(const RunPlan& plan);
// Index of the stage in [begin, end) with the most missing bytes, then the highest device peak.
[[nodiscard]] std::size_t largest_stage(const std::vector<StagePlan>& stages, std::size_t begin,
                                        std::size_t end);

// Bytes that a rank of the stage sends in a step, by axis of the mesh. "replicas" and "ends" are
// gradients of parameters that several tensor-parallel ranks, or the first and the last stage,
// hold. "world" is the global norm.
struct AxisBytes {
  const char* name;  // "tensor", "data", "pipeline", "replicas", "ends", "world"
  std::int64_t bytes = 0;
  std::int64_t between_nodes = 0;  // part of `bytes`
  double bps = 0;
};
[[nodiscard]] std::vector<AxisBytes> bytes_by_axis(const StagePlan& stage, const MeshWires& wires);

// Further facts for the print of a plan.
struct RunFacts {
  std::string config;  // the file's name
  std::string model;   // "llama"
  std::string dtype;
  std::string recompute;
  std::string order;
  std::string machine;         // the profile's name
  std::string rates_from;      // origin of the machine's rates
  std::int64_t steps = 0;      // of the run
  std::int64_t tokens = 0;     // tokens to train on (--tokens); 0: not given
  double endurance_bytes = 0;  // written bytes that a drive is rated for
  LaneSeconds hiding{};        // hiding_tokens() (planner.hpp)
  std::vector<std::string> notes;
  // What this machine lacks for the plan, a sentence each. Empty for another machine's plan.
  std::vector<std::string> shortages;
};

}  // namespace sluice
