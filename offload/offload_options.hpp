// Which tier each kind of state lives on: the `offload:` section.
#pragma once

#include <string>
#include <vector>

#include "kernels/base/dtype.hpp"

namespace sluice {

enum class Tier { kDevice, kHost, kNvme };

struct OffloadOptions {
  Tier optimizer = Tier::kDevice;
  Tier parameters = Tier::kDevice;
  Tier gradients = Tier::kDevice;
  Tier activations = Tier::kDevice;
  std::vector<std::string> nvme_path;
  double device_fraction = 0.0;          // share of an offloaded state that stays on the device
  DType states_dtype = DType::kFloat32;  // of the moments on a slower tier
};

}  // namespace sluice
