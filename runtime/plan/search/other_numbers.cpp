#include "runtime/plan/search/other_numbers.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "runtime/model/attention_choice.hpp"
#include "zero/optimizer_rule.hpp"

namespace sluice {
namespace {

constexpr double kMarkedlyFaster = 0.9;  // share of the best suggestion's step

// The configuration on the mesh of the first suggestion.
EngineOptions on_best_mesh(const PlanQuestion& question, const SearchResult& result) {
  const EngineOptions& best = result.suggestions.front().options;
  EngineOptions options = question.options;
  options.train = best.train;  // its micro-batch divides the samples of this mesh's ranks
  options.parallel = best.parallel;
  options.dp = best.dp;
  return options;
}

double fastest_of(const std::vector<Suggestion>& all) {
  double step_s = std::numeric_limits<double>::infinity();
  for (const Suggestion& s : all) step_s = std::min(step_s, s.plan.time.step_s);
  return step_s;
}

// `asked`: on_best_mesh() with other numbers. Adds a plan whose step is below `below_s`.
void find_with(const char* with, Planner& planner, const EngineOptions& asked,
               const PlanQuestion& question, SearchLimits limits, double below_s,
               SearchResult& result) {
  limits.most = 1;
  limits.evaluations = 16;
  limits.meshes = false;
  limits.below_s = below_s;
  SearchResult found = suggest(planner, {asked, question.budgets}, limits);
  result.candidates += found.candidates;
  result.evaluated += found.evaluated;
  if (!found.any_fits) return;
  Suggestion& best = found.suggestions.front();
  if (best.plan.time.step_s >= limits.below_s) return;
  best.set = differences(question.options, best.options);
  best.with = with;
  result.others.push_back(std::move(best));
}

// The step time below which a plan is markedly faster than the suggestions; infinite if none fits.
double markedly_below(const SearchResult& result) {
  return result.any_fits ? kMarkedlyFaster * result.suggestions.front().plan.time.step_s
                         : std::numeric_limits<double>::infinity();
}

// The limits, with one condition more. Refers to `limits`.
SearchLimits also(const SearchLimits& limits, std::function<bool(const EngineOptions&)> allowed) {
  SearchLimits both = limits;
  both.allowed = [&limits, allowed = std::move(allowed)](const EngineOptions& options) {
    return allowed(options) && (!limits.allowed || limits.allowed(options));
  };
  return both;
}

struct Narrow {
  bool moments = false;
  bool gradients = false;
};

void find_narrow(const char* with, const Narrow& narrow, Planner& planner,
                 const PlanQuestion& question, const SearchLimits& limits, double below_s,
                 SearchResult& result) {
  EngineOptions asked = on_best_mesh(question, result);
  if (narrow.moments) asked.offload.states_dtype = DType::kBFloat16;
  if (narrow.gradients) asked.offload.gradients_dtype = DType::kBFloat16;
  // Gradients on the device that are copied to the host's update are fp32.
  const SearchLimits rounding = also(limits, [narrow](const EngineOptions& options) {
    const OffloadOptions& offload = options.offload;
    return !narrow.gradients || offload.gradients != Tier::kDevice ||
           offload.optimizer == Tier::kDevice;
  });
  find_with(with, planner, asked, question, rounding, below_s, result);
}

}  // namespace

void suggest_bf16_states(Planner& planner, const PlanQuestion& question, const SearchLimits& limits,
                         SearchResult& result) {
  const EngineOptions& options = question.options;
  const bool moments = rule_of(options.optimizer.type).narrow_moments &&
                       options.offload.states_dtype != DType::kBFloat16;
  const bool gradients = options.train.dtype == DType::kBFloat16 &&
                         options.offload.gradients_dtype != DType::kBFloat16;
  if (result.suggestions.empty()) return;
  const double below_s = markedly_below(result);
  if (moments) {
    find_narrow("bf16 moments", {.moments = true}, planner, question, limits, below_s, result);
  }
  if (gradients) {
    find_narrow("bf16 gradients", {.gradients = true}, planner, question, limits, below_s, result);
  }
  if (!moments || !gradients) return;
  const double than_either = std::min(below_s, kMarkedlyFaster * fastest_of(result.others));
  find_narrow("bf16 moments and gradients", {.moments = true, .gradients = true}, planner, question,
              limits, than_either, result);
}

void suggest_bf16_reductions(Planner& planner, const PlanQuestion& question,
                             const SearchLimits& limits, SearchResult& result) {
  if (result.suggestions.empty()) return;
  EngineOptions asked = on_best_mesh(question, result);
  const bool narrow = asked.zero.reduce_dtype == DType::kBFloat16;
  if (asked.dp == 1 || asked.train.dtype != DType::kBFloat16 || narrow) return;
  asked.zero.reduce_dtype = DType::kBFloat16;
  find_with("bf16 reductions", planner, asked, question, limits, markedly_below(result), result);
}

void suggest_unclipped(Planner& planner, const PlanQuestion& question, const SearchLimits& limits,
                       SearchResult& result) {
  const EngineOptions& options = question.options;
  const bool may = options.model.on_gpu && options.train.dtype != DType::kFloat16;
  if (result.suggestions.empty() || options.train.clip == 0 || !may) return;
  EngineOptions asked = on_best_mesh(question, result);
  asked.train.clip = 0;
  const SearchLimits in_backward = also(
      limits, [](const EngineOptions& tried) { return tried.offload.optimizer == Tier::kDevice; });
  find_with("train.clip 0", planner, asked, question, in_backward, markedly_below(result), result);
}

void suggest_bf16(const MachineProfile& machine, const PlanQuestion& question,
                  const SearchLimits& limits, SearchResult& result) {
  const EngineOptions& options = question.options;
  if (result.suggestions.empty() || options.train.dtype != DType::kFloat32 ||
      !options.model.on_gpu) {
    return;
  }
  // On a GPU autograd units refuse some 16-bit runs (check_gpu_documents), and train.matmul: fp32
  // refuses all (choose_matmul).
  if (!options.model.explicit_units || options.train.matmul == MatmulChoice::kFp32) return;
  EngineOptions asked = on_best_mesh(question, result);
  asked.train.dtype = DType::kBFloat16;
  asked.model.attention =
      settled_attention(options.train.attention, options.model, DType::kBFloat16);
  Planner planner(machine);  // a planner's questions are about one model
  find_with("train.dtype bf16", planner, asked, question, limits, markedly_below(result), result);
}

}  // namespace sluice
