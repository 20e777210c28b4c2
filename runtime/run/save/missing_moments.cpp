#include "runtime/run/save/missing_moments.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/counted.hpp"
#include "base/log.hpp"

namespace sluice {
namespace {

// Of an even gradient: the largest update of a parameter whose moments start from zero after Adam's
// bias correction has ended, over the same update of a new run.
double most_of_new_update(double beta1, double beta2) {
  double most = 0, first = 1, second = 1;
  for (int k = 1; k <= 1000; ++k) {
    first *= beta1;
    second *= beta2;
    most = std::max(most, (1 - first) / std::sqrt(1 - second));
  }
  return most;
}

}  // namespace

void warn_of_missing(const TrainedMoments& moments, const OptimizerOptions& optimizer) {
  if (moments.missing == 0) return;
  if (moments.held == 0) {
    log_warning("the checkpoint holds no moments of the trained parameters: they start from zero");
    return;
  }
  log_warning("frozen in the checkpoint and trained now: " + counted(moments.missing, "parameter") +
              "; their moments start from zero, those of the other " +
              std::to_string(moments.held) + " go on");
  if (optimizer.type != OptimizerType::kAdamW || !optimizer.bias_correction) return;
  const double most = most_of_new_update(optimizer.betas[0], optimizer.betas[1]);
  if (most < 2) return;
  log_warning(
      "Adam counts the run's updates for them too, so their first updates are up to about " +
      std::to_string(std::lround(most)) +
      " times those of a new run: lower optimizer.lr, or warm up again (docs/checkpoints.md)");
}

}  // namespace sluice
