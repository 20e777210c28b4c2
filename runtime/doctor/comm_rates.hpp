// Latency and bandwidth of collectives from times by size. Pure; thread-safe.
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

// Of `sluice bench comm --json`. Throws IoError where the text is something else.
[[nodiscard]] std::vector<CommSample> read_comm_samples(const std::string& bench_json);

// The line nearest to the samples, errors counted relative to each time, so that small and large
// sizes weigh the same. Both numbers are positive: where the line has none such, the smallest
// sample is the latency and the largest the rate. nullopt without two different sizes.
[[nodiscard]] std::optional<LinkRates> fit_link(const std::vector<CommSample>& samples);

// fit_link of each transport, all operations together.
[[nodiscard]] std::map<std::string, LinkRates> fit_transports(
    const std::vector<CommSample>& samples);

}  // namespace sluice
