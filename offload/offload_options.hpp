// Which tier each kind of state lives on: the `offload:` section.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"

namespace sluice {

enum class Tier { kDevice, kHost, kNvme };

// As the configuration writes it.
[[nodiscard]] constexpr std::string_view name_of(Tier tier) {
  return tier == Tier::kDevice ? "device" : tier == Tier::kHost ? "host" : "nvme";
}

// Whether optimizer states on NVMe are updated under the last backward, before the gradient norm is
// known, into a second place there.
enum class Speculation {
  kNever,
  kAuto,  // while the last steps were not clipped
};

struct OffloadOptions {
  Tier optimizer = Tier::kDevice;
  Tier parameters = Tier::kDevice;
  Tier gradients = Tier::kDevice;
  Tier activations = Tier::kDevice;
  std::vector<std::string> nvme_path;
  double device_fraction = 0.0;          // share of an offloaded state that stays on the device
  DType states_dtype = DType::kFloat32;  // of the moments on a slower tier
  // Optimizer states pass through the host in chunks: bytes of one of a chunk's fp32 arrays, and
  // chunks on the host at a time.
  std::int64_t chunk_bytes = std::int64_t{16} << 20;
  int chunks = 4;
  Speculation speculate = Speculation::kNever;
  // Optimizer states on NVMe are written beside those of the step before, and each step is
  // committed: a run that was killed goes on from there.
  bool image = false;
  // Of the NVMe store, as in NvmeOptions (offload/nvme_store.hpp).
  bool direct = true;  // false: IoCache::kDirectOrBuffered
  bool checksums = true;
  int queue_depth = 32;
  std::int64_t block_bytes = std::int64_t{1} << 20;
};

}  // namespace sluice
