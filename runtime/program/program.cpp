#include "runtime/program/program.hpp"

namespace sluice {

std::string_view name_of(OpKind kind) {
  switch (kind) {
    case OpKind::kLoadBatch:
      return "LoadBatch";
    case OpKind::kGather:
      return "Gather";
    case OpKind::kRelease:
      return "Release";
    case OpKind::kForward:
      return "Forward";
    case OpKind::kLossHead:
      return "LossHead";
    case OpKind::kBackward:
      return "Backward";
    case OpKind::kReduceGrads:
      return "ReduceGrads";
    case OpKind::kGatherGrads:
      return "GatherGrads";
    case OpKind::kNormAndScale:
      return "NormAndScale";
    case OpKind::kUpdate:
      return "Update";
  }
  return "?";
}

std::string_view name_of(Lane lane) { return lane == Lane::kCompute ? "compute" : "comm"; }

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
    case Tag::kWorkspace:
      return "workspace";
  }
  return "?";
}

}  // namespace sluice
