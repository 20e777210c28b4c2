#include <algorithm>
#include <cstdint>
#include <limits>
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

// Whether a step would be a tenth shorter if the device had room for every state and activation.
bool device_is_short(Planner& planner, PlanQuestion question, SearchLimits limits,
                     const Suggestion& best) {
  if (world_of(question.options) == 1) return false;
  question.budgets.device = std::numeric_limits<std::int64_t>::max();
  question.budgets.card = 0;
  limits.most = 1;
  const SearchResult roomy = search(planner, question, limits);
  return roomy.any_fits && roomy.suggestions.front().plan.time.step_s < 0.9 * best.plan.time.step_s;
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
  const auto add_placed = [&](const EngineOptions& from) {
    SearchResult placed = suggest(planner, {from, question.budgets}, limits);
    const double longest = kWorthwhile * result.suggestions.front().plan.time.step_s;
    std::erase_if(placed.suggestions, [&](const Suggestion& s) {
      return s.options.offload.optimizer == Tier::kDevice || s.plan.time.step_s > longest;
    });
    add_found(std::move(placed), question, limits, result);
  };
  const bool on_all_meshes = limits.meshes && result.any_fits &&
                             device_is_short(planner, question, limits, result.suggestions.front());
  limits.offload = true;
  if (!result.any_fits) return suggest(planner, question, limits);
  const EngineOptions best = result.suggestions.front().options;
  if (on_all_meshes) {
    limits.evaluations *= 2;
    add_placed(question.options);
    limits.evaluations /= 2;
  }
  limits.meshes = false;
  add_placed(best);
  return result;
}

}  // namespace sluice
