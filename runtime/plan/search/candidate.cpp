#include "runtime/plan/search/candidate.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace sluice {
namespace {

constexpr double kAlmostAll = 0.99;  // the most of fitting_on_host()

bool faster(const Found& a, const Found& b) {
  return std::tie(a.step_s, a.candidate->changes) < std::tie(b.step_s, b.candidate->changes);
}

// States on the device or the host may then be a part of the optimizer's.
bool may_spread(const Candidate& candidate) {
  const OffloadOptions& offload = candidate.options.offload;
  return offload.optimizer == Tier::kNvme && offload.activations == Tier::kDevice &&
         candidate.options.parallel.pipeline == 1 && candidate.floor_missing == 0;
}

bool may_share(const Candidate& candidate) {
  const OffloadOptions& offload = candidate.options.offload;
  return offload.optimizer == Tier::kHost && offload.parameters == Tier::kDevice &&
         offload.gradients == Tier::kDevice && candidate.options.parallel.pipeline == 1;
}

}  // namespace

void insert(std::vector<Found>& all, const Found& found) {
  for (Found& other : all) {
    if (other.step_s != found.step_s || other.peaks != found.peaks) continue;
    if (found.candidate->changes < other.candidate->changes) other = found;
    return;
  }
  all.insert(std::upper_bound(all.begin(), all.end(), found, faster), found);
}

Candidate with_host_fraction(const Found& found) {
  Candidate candidate = *found.candidate;
  candidate.options.offload.host_fraction = found.host_fraction;
  return candidate;
}

bool may_be_all_on_host(const Found& found) {
  return found.host_fraction >= kAlmostAll &&
         found.candidate->options.offload.parameters != Tier::kNvme;
}

Candidate with_all_on_host(const Found& found) {
  Candidate candidate = *found.candidate;
  candidate.options.offload.optimizer = Tier::kHost;
  candidate.options.offload.host_fraction = 0;
  return candidate;
}

std::vector<const Candidate*> other_placements(const std::vector<Candidate>& candidates,
                                               const std::vector<Found>& found) {
  const bool on_nvme = !found.empty() && found.front().missing == 0 &&
                       found.front().candidate->options.offload.optimizer == Tier::kNvme;
  if (!on_nvme) return {};
  std::map<std::tuple<Tier, Tier, RecomputeMode>, const Candidate*> least;
  for (const Candidate& candidate : candidates) {
    if (!may_spread(candidate)) continue;
    const EngineOptions& options = candidate.options;
    const Candidate*& best =
        least[{options.offload.parameters, options.offload.gradients, options.recompute.mode}];
    if (best == nullptr || candidate.floor_device < best->floor_device) best = &candidate;
  }
  std::vector<const Candidate*> others;
  for (const auto& [placement, candidate] : least) {
    if (std::ranges::find(found, candidate, &Found::candidate) == found.end()) {
      others.push_back(candidate);
    }
  }
  return others;
}

std::vector<const Candidate*> host_placements(const std::vector<Candidate>& candidates) {
  std::map<std::pair<RecomputeMode, Tier>, const Candidate*> least;
  for (const Candidate& candidate : candidates) {
    if (!may_share(candidate)) continue;
    const EngineOptions& options = candidate.options;
    const Candidate*& best = least[{options.recompute.mode, options.offload.activations}];
    if (best == nullptr || candidate.floor_device < best->floor_device) best = &candidate;
  }
  std::vector<const Candidate*> all;
  for (const auto& [placement, candidate] : least) all.push_back(candidate);
  return all;
}

Candidate with_device_fraction(const Found& found) {
  Candidate candidate = *found.candidate;
  candidate.options.offload.device_fraction += found.device_fraction;
  return candidate;
}

}  // namespace sluice
