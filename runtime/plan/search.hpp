// Looks for the fastest configuration of a model that fits: mesh (tensor x pipeline x data,
// schedule, sequence) x stage x tiers x recompute x micro-batch x order of accumulation, at the
// given global batch and number of ranks. Deterministic: nothing is measured and no clock is looked
// at.
//
// Candidates come in order of a lower bound of their step; the search ends where the bound is above
// what has been found. Those whose states alone are over a budget are left out. The rest is planned
// with a few micro-batches, twice, and drawn out from there; what is suggested is then planned as
// it is.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/plan/planner.hpp"
#include "runtime/plan/settings.hpp"

namespace sluice {

struct Suggestion {
  std::vector<Setting> set;  // what differs from the configuration; empty: it is best as it is
  RunPlan plan;              // without its program
};

struct SearchLimits {
  int most = 5;          // suggestions
  int evaluations = 64;  // candidates that are planned; where none fits, as many others
  bool offload = true;   // states may leave the device
  std::int64_t most_micro_batch = 64;
  bool meshes = false;  // other meshes of as many ranks
  // Whether a mesh, a placement and an order may stand together; empty: all may.
  std::function<bool(const EngineOptions&)> allowed{};
};

struct SearchResult {
  // Fastest first; where nothing fits: the one that misses least, alone.
  std::vector<Suggestion> suggestions;
  bool any_fits = false;
  int candidates = 0;  // configurations that were considered
  int evaluated = 0;
};

[[nodiscard]] SearchResult suggest(Planner& planner, const PlanQuestion& question,
                                   const SearchLimits& limits = {});

// The fit table: rows are offload targets, columns stages 0-3.
struct FitCell {
  bool possible = false;  // the combination has a meaning
  std::string refused;    // why this model or mesh cannot have it; empty: it was planned
  bool fits = false;
  std::int64_t device = 0, host = 0, nvme = 0;  // peaks
  double step_s = 0;
};
struct FitRow {
  std::string name;
  std::vector<FitCell> stages;
};
[[nodiscard]] std::vector<FitRow> compare(Planner& planner, const PlanQuestion& question);

}  // namespace sluice
