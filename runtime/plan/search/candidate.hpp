// The candidates of a search, and what is found of them. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/plan/planned_run.hpp"

namespace sluice {

struct Candidate {
  EngineOptions options;
  double floor_s = 0;              // lower bound of the step
  std::int64_t floor_missing = 0;  // lower bound of the bytes above the budgets
  std::int64_t floor_device = 0;   // lower bound of the bytes on the device
  std::int64_t chunks = 0;
  int changes = 0;  // to the configuration
};

struct Found {
  const Candidate* candidate;
  double step_s;
  std::int64_t missing;    // bytes above the budgets
  double device_fraction;  // fitting_on_device()
  double host_fraction;    // fitting_on_host()
  TierBytes peaks{};
};

// Keeps `all` sorted, fastest first. Of plans that are alike, such as those of several stages for
// one rank, the one with the fewest changes stays.
void insert(std::vector<Found>& all, const Found& found);

// With as many of the states on the host as fit there.
[[nodiscard]] Candidate with_host_fraction(const Found& found);

// The host may have room for all states that are on NVMe.
[[nodiscard]] bool may_be_all_on_host(const Found& found);
[[nodiscard]] Candidate with_all_on_host(const Found& found);

// The bounds do not count states on NVMe that will be on the device or on the host. So where the
// fastest of `found` has states on NVMe, a candidate that was not planned may be the fastest in the
// end: the one with the least memory on the device, of each placement of parameters and gradients
// and each mode of recomputation.
[[nodiscard]] std::vector<const Candidate*> other_placements(
    const std::vector<Candidate>& candidates, const std::vector<Found>& found);

// Where the host has no room for all of the optimizer, a part of it may fit on the device and the
// rest on the host. Neither bound counts that. The candidates with the optimizer on the host that
// leave most of the device free, of each mode of recomputation and tier of activations.
[[nodiscard]] std::vector<const Candidate*> host_placements(
    const std::vector<Candidate>& candidates);

// With more of the optimizer on the device, as much as fits there.
[[nodiscard]] Candidate with_device_fraction(const Found& found);

}  // namespace sluice
