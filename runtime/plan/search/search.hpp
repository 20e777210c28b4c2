// Searches for the fastest configuration of a model that fits: mesh (tensor x pipeline x data,
// schedule, sequence) x stage x tiers x recompute x micro-batch x order of accumulation, at the
// given global batch and number of ranks. Deterministic: measures nothing and reads no clock.
//
// Candidates are tried in order of a lower bound of their step time. The search ends when the bound
// exceeds the times found. Candidates whose memory bound exceeds a budget are skipped. Others are
// planned with two small numbers of micro-batches and extrapolated. Where only NVMe has room for
// the optimizer, or nothing fits, a part of it is tried on the device and the rest on the host.
// What was found is tried with states on the device as far as they fit, and with speculative
// updates; the fastest also with more prefetched units. Suggestions are then planned in full.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/plan/planner.hpp"
#include "runtime/plan/search/settings.hpp"

namespace sluice {

struct Suggestion {
  std::vector<Setting> set;  // changes to the configuration; empty: no change is better
  RunPlan plan;              // without its program
  EngineOptions options{};   // with the changes
  std::string with{};        // the numbers that are not the configuration's: "bf16 moments"
};

struct SearchLimits {
  int most = 5;          // suggestions
  int evaluations = 64;  // candidates that a search plans; if none fits, as many again
  bool offload = true;   // states may leave the device
  std::int64_t most_micro_batch = 64;
  // If nothing fits, the search for the nearest miss plans no program with more chunks than this,
  // because such a plan takes minutes. With chunks of 16 MiB: 84e9 parameters a rank.
  std::int64_t most_chunks = 20'000;
  bool meshes = false;  // try other meshes of as many ranks
  // Above 0: only configurations that fit and whose step is shorter are found, no nearest miss.
  double below_s = 0;
  // Whether a mesh, a placement and an order are a valid combination; empty: all are.
  std::function<bool(const EngineOptions&)> allowed{};
};

struct SearchResult {
  // Fastest first. If nothing fits: only the suggestion with the fewest missing bytes, or none if
  // the model is far too large.
  std::vector<Suggestion> suggestions;
  bool any_fits = false;
  std::vector<Suggestion> others{};  // with other numbers (other_numbers.hpp)
  int candidates = 0;                // configurations considered, in all searches
  int evaluated = 0;
  bool spent = false;  // the evaluations were used up before the bounds ended the search
};

// A plan that saves less than a hundredth of a step is no reason to take more memory.
inline constexpr double kWorthwhile = 0.99;

// One search over all meshes of the limits.
[[nodiscard]] SearchResult search(Planner& planner, const PlanQuestion& question,
                                  const SearchLimits& limits);

// The best of a search over all meshes and, if that used up its evaluations, of searches over the
// configured mesh and over data-parallel ranks alone.
[[nodiscard]] SearchResult suggest(Planner& planner, const PlanQuestion& question,
                                   const SearchLimits& limits = {});

// The same for GPUs. Placements off the device are many, and each takes long to plan: if all states
// fit on the device, they are tried on the best mesh alone, or on all meshes if a step would be
// much shorter with more device memory. They are suggested where they are faster.
[[nodiscard]] SearchResult suggest_for_gpus(Planner& planner, const PlanQuestion& question,
                                            SearchLimits limits);

}  // namespace sluice
