#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/plan/search/ranking.hpp"
#include "runtime/plan/search/search.hpp"

namespace sluice {
namespace {

// Adds what another search has found for the question.
void add_found(SearchResult&& found, const PlanQuestion& question, const SearchLimits& limits,
               SearchResult& to) {
  to.candidates += found.candidates;
  to.evaluated += found.evaluated;
  for (Suggestion& s : found.suggestions) {
    s.set = differences(question.options, s.options);
    to.suggestions.push_back(std::move(s));
  }
  to.any_fits = keep_best(to.suggestions, limits.most);
}

// The question on a mesh of data-parallel ranks alone.
EngineOptions with_data_ranks_alone(const EngineOptions& options) {
  EngineOptions data = options;
  data.train.global_batch = samples_of_step(options);
  set_mesh(data, {});
  data.train.micro_batch =
      std::gcd(data.train.micro_batch, data.train.global_batch / std::max(1, data.dp));
  return data;
}

}  // namespace

// The lower bound of a pipeline with states off the device leaves out the wait for updates. Such
// candidates sort first and may use up all evaluations. The configured mesh and the mesh of
// data-parallel ranks then have searches of their own.
SearchResult suggest(Planner& planner, const PlanQuestion& question, const SearchLimits& limits) {
  SearchResult result = search(planner, question, limits);
  const EngineOptions& options = question.options;
  if (!limits.meshes || !result.spent || world_of(options) == 1) return result;
  SearchLimits own = limits;
  own.meshes = false;
  add_found(search(planner, question, own), question, limits, result);
  if (options.parallel.tensor * options.parallel.pipeline == 1 ||
      options.parallel.stage_layers.size() > 1 ||
      samples_of_step(options) % world_of(options) != 0) {
    return result;
  }
  const EngineOptions data = with_data_ranks_alone(options);
  if (limits.allowed && !limits.allowed(data)) return result;
  add_found(search(planner, {data, question.budgets}, own), question, limits, result);
  return result;
}

SearchResult suggest_for_gpus(Planner& planner, const PlanQuestion& question, SearchLimits limits) {
  limits.offload = false;
  SearchResult result = suggest(planner, question, limits);
  limits.offload = true;
  if (!result.any_fits) return suggest(planner, question, limits);
  limits.meshes = false;
  SearchResult placed =
      suggest(planner, {result.suggestions.front().options, question.budgets}, limits);
  const double longest = kWorthwhile * result.suggestions.front().plan.time.step_s;
  std::erase_if(placed.suggestions, [&](const Suggestion& s) {
    return s.options.offload.optimizer == Tier::kDevice || s.plan.time.step_s > longest;
  });
  add_found(std::move(placed), question, limits, result);
  return result;
}

}  // namespace sluice
