// Moments that a checkpoint lacks, because their parameters were frozen when it was saved.
#pragma once

#include "runtime/run/state_io.hpp"
#include "zero/optimizer_options.hpp"

namespace sluice {

// Warns if trained parameters have no moments, and if their first updates will be large. Where some
// moments are held, the number of updates goes on for all parameters.
void warn_of_missing(const TrainedMoments& moments, const OptimizerOptions& optimizer);

}  // namespace sluice
