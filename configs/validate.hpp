// Rules between keys, checked before a process starts. Reads the folders of offload.nvme_path and
// changes nothing; thread-safe.
#pragma once

#include <optional>

#include "configs/reader.hpp"

namespace sluice {

// The use of a configuration, which decides the rules that apply.
enum class Purpose {
  kTrain,             // all rules
  kUse,               // as kTrain, for a program that only reads a model
  kDryRun,            // opens no data, so the configuration need not name any
  kPlan,              // as kDryRun; may be for another machine: ignores folders of nvme_path
  kPlanWithoutModel,  // as kPlan, for a migration; no rule that compares with sizes of the model
};

// `world` is the number of ranks of the whole job, `gpus` that of this host's GPUs where it is
// known. Throws one ConfigError with a line per broken rule: the place of the key most to blame,
// the key, the equation with its numbers, e.g.
//   x.yaml:3:17: train.global_batch: global_batch = micro_batch x accumulation x dp has no whole
//   accumulation: 10 = 4 x 1.25 x 2; the nearest that fit are 8 and 16
void validate(const LoadedConfig& config, int world, std::optional<int> gpus = std::nullopt,
              Purpose purpose = Purpose::kTrain);

}  // namespace sluice
