// Latency and rate of collectives, fitted to times by size. Pure; thread-safe.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/plan/machine_rates.hpp"

namespace sluice {

struct CommSample {
  std::string transport, operation;
  double bytes = 0;  // that a rank receives from others
  double seconds = 0;
};

// Parses `sluice bench comm --json`. Throws IoError for other text.
[[nodiscard]] std::vector<CommSample> read_comm_samples(const std::string& bench_json);

// The line nearest to the samples, with errors relative to each time, so that small and large sizes
// weigh the same. Both results are positive: if the line's are not, the smallest sample is the
// latency and the largest gives the rate. nullopt without two different sizes.
[[nodiscard]] std::optional<LinkRates> fit_link(const std::vector<CommSample>& samples);

// fit_link of each transport over all operations.
[[nodiscard]] std::map<std::string, LinkRates> fit_transports(
    const std::vector<CommSample>& samples);

}  // namespace sluice
