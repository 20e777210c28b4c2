// Weights to use rather than to train: from a checkpoint of ours or a Hugging Face folder, with the
// configuration that goes with them. Functions of their arguments and of the files; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "configs/reader.hpp"
#include "runtime/engine/initial_weights.hpp"

namespace sluice {

struct WeightsRequest {
  std::string config;                  // a YAML file; empty: the one that goes with the weights
  std::string checkpoint;              // a folder; empty: model.from of the configuration
  std::vector<std::string> overrides;  // "section.key=value"
  int world = 1;
};

// A configuration that only reads parameters: fp32 or 16 bits as it says, sharded by stage 3 where
// they live off the device. Its model is the weights'.
struct UsedWeights {
  LoadedConfig config;
  InitialWeights source;           // reads a rank's share; one thread at a time
  std::string path;                // the folder, or the step's folder in it
  std::int64_t step = -1;          // of our own checkpoint
  std::vector<std::string> notes;  // to be told once
};

// Throws ConfigError, IoError or CheckpointError: no folder given, not a folder of weights, another
// model than the configuration's, a configuration that does not hold for `world`.
[[nodiscard]] UsedWeights use_weights(const WeightsRequest& request);

}  // namespace sluice
