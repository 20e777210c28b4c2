// The `offload:` section: the tier of each kind of state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"

namespace sluice {

enum class Tier { kDevice, kHost, kNvme };

// The configuration's name of a tier.
[[nodiscard]] constexpr std::string_view name_of(Tier tier) {
  return tier == Tier::kDevice ? "device" : tier == Tier::kHost ? "host" : "nvme";
}

// Speculative update: optimizer states off-device are updated into their second place during the
// last backward, before the gradient norm is known.
enum class Speculation {
  kNever,
  kAuto,  // unless one of the last steps was clipped
};

struct OffloadOptions {
  Tier optimizer = Tier::kDevice;
  Tier parameters = Tier::kDevice;
  Tier gradients = Tier::kDevice;
  Tier activations = Tier::kDevice;
  std::vector<std::string> nvme_path;
  double device_fraction = 0.0;          // share of the optimizer's states that stays on the device
  double host_fraction = 0.0;            // optimizer on NVMe: share of its states on the host
  DType states_dtype = DType::kFloat32;  // dtype of the optimizer's moments on every tier
  // dtype of off-device gradient shards and, with one data-parallel rank, of the blocks' gradients
  // on the device: fp32, or bf16 rounded to nearest even.
  DType gradients_dtype = DType::kFloat32;
  // Optimizer states pass through the host in chunks. chunk_bytes: size of one fp32 array of a
  // chunk. chunks: chunks on the host at the same time.
  std::int64_t chunk_bytes = std::int64_t{16} << 20;
  int chunks = 4;
  Speculation speculate = Speculation::kNever;
  // Commit the optimizer states on NVMe at every step, so that a killed run resumes from the last
  // commit (offload/nvme_image.hpp).
  bool image = false;
  // Options of the NVMe store, as in NvmeOptions (offload/nvme_store.hpp).
  bool direct = true;  // false: IoCache::kDirectOrBuffered
  bool checksums = true;
  int queue_depth = 32;
  std::int64_t block_bytes = std::int64_t{1} << 20;
};

}  // namespace sluice
