// A small world that is trained, saved and resumed, on any layout.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/run/checkpointing.hpp"
#include "tests/runtime/engine/world.hpp"

namespace sluice::testing {

struct Layout {
  int dp = 1;
  int stage = 0;
  Tier optimizer = Tier::kDevice;
  Tier parameters = Tier::kDevice;
  Tier gradients = Tier::kDevice;
  double device_fraction = 0;
  double host_fraction = 0;
  ParallelOptions parallel = {};
};

// tiny_options() of 12 samples a step on a layout; NVMe is the folder `swap`.
[[nodiscard]] EngineOptions options_of(const Layout& layout, const std::string& swap,
                                       DType dtype = DType::kFloat32);

struct Part {
  int steps = 0;            // to train, after what is resumed
  std::string resume = {};  // a folder of checkpoints; empty: from the start
  std::string save = {};    // where to save at the end; empty: nowhere
  bool behind = false;
  int steps_behind = 0;  // trained while the save is written
};

// Every number of rank 0; losses of `steps` and `steps_behind`, weights after the last.
[[nodiscard]] WorldResult train_part(const EngineOptions& options, const Part& part);

// Each parameter's states in the newest checkpoint of a folder, as "master/h.0.ln_1.weight".
[[nodiscard]] std::map<std::string, std::vector<float>> states_in(const std::string& folder);

}  // namespace sluice::testing
