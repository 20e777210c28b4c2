// The purposes of memory: rows in a plan's tables, in budget errors and in metrics. Pure.
#pragma once

#include <string_view>

namespace sluice {

enum class Tag {
  kParameters,
  kGatheredParameters,
  kMaster,
  kMoments,
  kGradients,
  kGradientBuckets,
  kActivations,
  kActivationGradients,
  kLossHead,
  kCommStaging,
  kBatch,
  kStateStaging,      // the ring of chunks
  kParameterStaging,  // parameter shards in transfer to the device
  kGradientStaging,   // reduced buckets in transfer off the device
  kKvCache,           // keys and values of a generated sequence
  kImage,             // image records, which name the current places on NVMe
  kBounce,            // bounce buffer for gradients that the host adds
  kNvmeStore,         // the NVMe store's own buffers, headers and hashes
  kWorkspace,
};
inline constexpr int kTagCount = static_cast<int>(Tag::kWorkspace) + 1;

// "parameters": the name in plan.json and docs/configuration.md.
[[nodiscard]] std::string_view name_of(Tag tag);

}  // namespace sluice
