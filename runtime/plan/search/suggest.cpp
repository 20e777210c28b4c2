#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "runtime/plan/search/ranking.hpp"
#include "runtime/plan/search/search.hpp"

namespace sluice {
namespace {

// Adds what another search has found for the question. Misses are dropped where something fits.
void add_found(SearchResult&& found, const PlanQuestion& question, const SearchLimits& limits,
               SearchResult& to) {
  to.candidates += found.candidates;
  to.evaluated += found.evaluated;
  if (to.any_fits && !found.any_fits) return;
  if (found.any_fits && !to.any_fits) to.suggestions.clear();
  to.any_fits = found.any_fits;
  for (Suggestion& s : found.suggestions) {
    s.set = differences(question.options, s.options);
    to.suggestions.push_back(std::move(s));
  }
  if (to.any_fits) return keep_best(to.suggestions, limits.most);
  const auto missing = [](const Suggestion& s) { return s.plan.missing(); };
  std::ranges::stable_sort(to.suggestions, {}, missing);
  if (to.suggestions.size() > 1) to.suggestions.resize(1);
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
  result.candidates += placed.candidates;
  result.evaluated += placed.evaluated;
  const double longest = kWorthwhile * result.suggestions.front().plan.time.step_s;
  for (Suggestion& s : placed.suggestions) {
    if (s.options.offload.optimizer == Tier::kDevice || s.plan.time.step_s > longest) continue;
    s.set = differences(question.options, s.options);
    result.suggestions.push_back(std::move(s));
  }
  keep_best(result.suggestions, limits.most);
  return result;
}

}  // namespace sluice
