// Which tier each kind of state lives on: the `offload:` section.
#pragma once

#include <string>
#include <vector>

namespace sluice {

enum class Tier { kDevice, kHost, kNvme };

struct OffloadOptions {
  Tier optimizer = Tier::kDevice;
  Tier parameters = Tier::kDevice;
  Tier gradients = Tier::kDevice;
  Tier activations = Tier::kDevice;
  std::vector<std::string> nvme_path;
  double device_fraction = 0.0;
};

}  // namespace sluice
