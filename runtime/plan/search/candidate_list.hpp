// The configurations that a search considers, with lower bounds of their step and memory. Pure but
// for the profiles that the planner makes of units.
#pragma once

#include <vector>

#include "runtime/plan/search/candidate.hpp"
#include "runtime/plan/search/search.hpp"

namespace sluice {

// Every mesh of the limits x micro-batch x stage x placement x order x recomputation that has a
// meaning. Larger micro-batches are left out where no smaller one may fit.
[[nodiscard]] std::vector<Candidate> list_candidates(Planner& planner, const PlanQuestion& question,
                                                     const SearchLimits& limits);

}  // namespace sluice
