#include "runtime/plan/search/other_numbers.hpp"

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

// `asked`: on_best_mesh() with other numbers.
void find_with(const char* with, Planner& planner, const EngineOptions& asked,
               const PlanQuestion& question, SearchLimits limits, SearchResult& result) {
  limits.most = 1;
  limits.evaluations = 16;
  limits.meshes = false;
  limits.below_s = result.any_fits ? kMarkedlyFaster * result.suggestions.front().plan.time.step_s
                                   : std::numeric_limits<double>::infinity();
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

}  // namespace

void suggest_bf16_moments(Planner& planner, const PlanQuestion& question,
                          const SearchLimits& limits, SearchResult& result) {
  if (result.suggestions.empty() || !rule_of(question.options.optimizer.type).narrow_moments ||
      question.options.offload.states_dtype == DType::kBFloat16) {
    return;
  }
  EngineOptions asked = on_best_mesh(question, result);
  asked.offload.states_dtype = DType::kBFloat16;
  SearchLimits away = limits;
  away.allowed = [&limits](const EngineOptions& options) {  // on the device moments stay fp32
    return options.offload.optimizer != Tier::kDevice &&
           (!limits.allowed || limits.allowed(options));
  };
  find_with("bf16 moments", planner, asked, question, away, result);
}

void suggest_bf16_gradients(Planner& planner, const PlanQuestion& question,
                            const SearchLimits& limits, SearchResult& result) {
  if (result.suggestions.empty() || question.options.train.dtype != DType::kBFloat16 ||
      question.options.offload.gradients_dtype == DType::kBFloat16) {
    return;
  }
  EngineOptions asked = on_best_mesh(question, result);
  asked.offload.gradients_dtype = DType::kBFloat16;
  SearchLimits away = limits;
  away.allowed = [&limits](const EngineOptions& options) {  // on the device gradients stay fp32
    return options.offload.gradients != Tier::kDevice &&
           (!limits.allowed || limits.allowed(options));
  };
  find_with("bf16 gradients", planner, asked, question, away, result);
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
  find_with("train.dtype bf16", planner, asked, question, limits, result);
}

}  // namespace sluice
