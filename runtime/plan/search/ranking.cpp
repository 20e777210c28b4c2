#include "runtime/plan/search/ranking.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "runtime/plan/search/search.hpp"

namespace sluice {
namespace {

// Whether the user gains by a suggestion that is slower than `faster`.
bool gains(const Suggestion& s, const Suggestion& faster) {
  constexpr double kMuchLess = 0.9;
  if (s.set.size() < faster.set.size()) return true;
  const auto& tiers = faster.plan.memory.tiers;
  for (std::size_t t = 0; t < tiers.size(); ++t) {
    const auto peak = static_cast<double>(s.plan.memory.tiers[t].peak);
    if (peak < kMuchLess * static_cast<double>(tiers[t].peak)) return true;
  }
  return false;
}

}  // namespace

bool keep_best(std::vector<Suggestion>& suggestions, int most) {
  if (std::ranges::none_of(suggestions, [](const Suggestion& s) { return s.plan.fits(); })) {
    std::ranges::stable_sort(suggestions, {}, [](const Suggestion& s) { return s.plan.missing(); });
    if (suggestions.size() > 1) suggestions.erase(suggestions.begin() + 1, suggestions.end());
    return false;
  }
  std::erase_if(suggestions, [](const Suggestion& s) { return !s.plan.fits(); });
  std::ranges::stable_sort(suggestions, {}, [](const Suggestion& s) { return s.plan.time.step_s; });
  std::vector<Suggestion> best;
  for (Suggestion& s : suggestions) {
    if (static_cast<int>(best.size()) == most) break;
    const bool worthwhile =
        std::ranges::all_of(best, [&](const Suggestion& faster) { return gains(s, faster); });
    if (worthwhile) best.push_back(std::move(s));
  }
  suggestions = std::move(best);
  return true;
}

}  // namespace sluice
