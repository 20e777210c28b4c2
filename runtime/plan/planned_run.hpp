// The plan of a run: its program, what it holds on each tier and how long a step takes. Values.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/engine/plan_text.hpp"
#include "runtime/plan/phase_memory.hpp"
#include "runtime/program/program.hpp"
#include "runtime/program/time_model.hpp"

namespace sluice {

struct RunPlan {
  StepShape shape;
  Program program;
  MemoryPlan memory;  // as the run checks it
  std::array<PhasePeaks, static_cast<std::size_t>(kTierCount)> phases{};
  std::int64_t pinned = 0;  // of the host's: what copies to and from a GPU pass through
  TimeReport time;
  Traffic traffic;
  int ranks = 1;
  int nodes = 1;
  std::int64_t params = 0;
  std::int64_t tokens_per_step = 0;
  double model_flops_per_step = 0;
  double peak_flops = 0;  // of all ranks

  [[nodiscard]] std::int64_t peak(Tier tier) const { return memory.of(tier).peak; }
  [[nodiscard]] bool fits() const { return memory.fits(); }
  // Bytes above the budgets, of all tiers.
  [[nodiscard]] std::int64_t missing() const {
    std::int64_t bytes = 0;
    for (const TierPlan& tier : memory.tiers) {
      if (!tier.fits()) bytes += tier.peak - tier.budget;
    }
    return bytes;
  }
  [[nodiscard]] double tokens_per_s() const {
    return time.step_s > 0 ? static_cast<double>(tokens_per_step) / time.step_s : 0;
  }
  // Steps that train on at least so many tokens.
  [[nodiscard]] double steps_for(std::int64_t tokens) const {
    return tokens_per_step > 0
               ? std::ceil(static_cast<double>(tokens) / static_cast<double>(tokens_per_step))
               : 0;
  }
  // Written to NVMe by a node in a step.
  [[nodiscard]] double node_written() const {
    return static_cast<double>(traffic.disk_written) * memory.budgets.ranks_of_host;
  }
  // Until one drive of a node has been written so many bytes; 0: nothing is written.
  [[nodiscard]] double drive_seconds(double endurance_bytes) const {
    return node_written() > 0 ? endurance_bytes / node_written() * time.step_s : 0;
  }
  [[nodiscard]] double mfu() const {
    const double most = time.step_s * peak_flops;
    return most > 0 ? model_flops_per_step / most : 0;
  }
};

// What a plan is printed with.
struct RunFacts {
  std::string config;  // the file
  std::string model;   // "llama"
  std::string dtype;
  std::string recompute;
  std::string order;
  std::string machine;         // the profile's name
  std::string rates_from;      // where its numbers are from
  std::int64_t steps = 0;      // of the run
  std::int64_t tokens = 0;     // to be trained on: --tokens; 0: none were named
  double endurance_bytes = 0;  // that a drive is rated for
  LaneSeconds hiding{};        // hiding_tokens() (planner.hpp)
  std::vector<std::string> unit_names;
  std::vector<std::string> notes;
};

}  // namespace sluice
