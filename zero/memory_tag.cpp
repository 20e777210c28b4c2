#include "zero/memory_tag.hpp"

namespace sluice {

std::string_view name_of(Tag tag) {
  switch (tag) {
    case Tag::kParameters:
      return "parameters";
    case Tag::kGatheredParameters:
      return "gathered_parameters";
    case Tag::kMaster:
      return "master";
    case Tag::kMoments:
      return "moments";
    case Tag::kGradients:
      return "gradients";
    case Tag::kGradientBuckets:
      return "gradient_buckets";
    case Tag::kActivations:
      return "activations";
    case Tag::kActivationGradients:
      return "activation_gradients";
    case Tag::kLossHead:
      return "loss_head";
    case Tag::kCommStaging:
      return "comm_staging";
    case Tag::kBatch:
      return "batch";
    case Tag::kStateStaging:
      return "state_staging";
    case Tag::kParameterStaging:
      return "parameter_staging";
    case Tag::kGradientStaging:
      return "gradient_staging";
    case Tag::kKvCache:
      return "kv_cache";
    case Tag::kImage:
      return "image";
    case Tag::kBounce:
      return "bounce";
    case Tag::kNvmeStore:
      return "nvme_store";
    case Tag::kWorkspace:
      return "workspace";
  }
  return "?";
}

}  // namespace sluice
