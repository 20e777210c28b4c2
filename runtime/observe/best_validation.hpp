// The validation losses of a run, from its metrics.jsonl: also those of the processes that the run
// was resumed from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sluice {

struct ValidationLoss {
  std::int64_t step = 0;
  double loss = 0;
};

struct ValidationLosses {
  ValidationLoss last;
  ValidationLoss best;  // the lowest, and the first of equal ones
  std::int64_t count = 0;
};

// nullopt: the file cannot be read or has none. Lines that are not whole, and losses that are not
// finite (null), do not count.
[[nodiscard]] std::optional<ValidationLosses> validation_losses(const std::string& metrics_path);

}  // namespace sluice
