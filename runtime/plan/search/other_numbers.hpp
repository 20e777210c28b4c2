// Configurations that train with numbers of other types than the given one, or without its clip, so
// the losses differ. They are found apart from the suggestions of search.hpp, which keep both.
#pragma once

#include "runtime/plan/search/search.hpp"

namespace sluice {

// Each adds to `result`, the answer of suggest() to `question`, the fastest configuration with
// other numbers, if it is markedly faster than all suggestions, or fits where none of them does.
// Only the mesh of the first suggestion is searched.

// Moments off the device in bf16, where the optimizer may hold them so; gradients off the device in
// bf16, of a run in bf16; both, if markedly faster than either.
void suggest_bf16_states(Planner& planner, const PlanQuestion& question, const SearchLimits& limits,
                         SearchResult& result);

// Gradients that data-parallel ranks send in bf16 (zero.reduce_dtype), of a run in bf16.
void suggest_bf16_reductions(Planner& planner, const PlanQuestion& question,
                             const SearchLimits& limits, SearchResult& result);

// train.clip 0 on a GPU, which may then update in the backward (StepShape::updates_in_backward).
void suggest_unclipped(Planner& planner, const PlanQuestion& question, const SearchLimits& limits,
                       SearchResult& result);

// train.dtype bf16 in place of fp32, on a GPU.
void suggest_bf16(const MachineProfile& machine, const PlanQuestion& question,
                  const SearchLimits& limits, SearchResult& result);

}  // namespace sluice
