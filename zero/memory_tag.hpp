// What memory is for: the rows of a plan's tables, of budgets' errors and of metrics. Pure.
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
  kParameterStaging,  // parameter shards on their way to the device
  kGradientStaging,   // reduced buckets on their way off the device
  kKvCache,           // keys and values of a sequence that is being generated
  kImage,             // records of an image: which places on NVMe are current
  kBounce,            // through which the host adds a GPU's gradients
  kNvmeStore,         // the NVMe store's own buffers, headers and hashes
  kWorkspace,
};
inline constexpr int kTagCount = static_cast<int>(Tag::kWorkspace) + 1;

// "parameters": as plan.json and docs/configuration.md write it.
[[nodiscard]] std::string_view name_of(Tag tag);

}  // namespace sluice
