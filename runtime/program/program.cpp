#include "runtime/program/program.hpp"

#include <algorithm>

namespace sluice {

bool adds_on_host(const Program& program) {
  return std::any_of(program.ops.begin(), program.ops.end(),
                     [](const Op& op) { return op.kind == OpKind::kStoreGrads && op.accumulate; });
}

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
    case OpKind::kRoundGrads:
      return "RoundGrads";
    case OpKind::kAddGrads:
      return "AddGrads";
    case OpKind::kGatherGrads:
      return "GatherGrads";
    case OpKind::kMeet:
      return "Meet";
    case OpKind::kNormAndScale:
      return "NormAndScale";
    case OpKind::kUpdate:
      return "Update";
    case OpKind::kReadStates:
      return "ReadStates";
    case OpKind::kCopyGrads:
      return "CopyGrads";
    case OpKind::kReadGrads:
      return "ReadGrads";
    case OpKind::kWriteStates:
      return "WriteStates";
    case OpKind::kCopyParams:
      return "CopyParams";
    case OpKind::kWriteParams:
      return "WriteParams";
    case OpKind::kReadShard:
      return "ReadShard";
    case OpKind::kFetchShard:
      return "FetchShard";
    case OpKind::kReadBucket:
      return "ReadBucket";
    case OpKind::kStoreGrads:
      return "StoreGrads";
    case OpKind::kWriteBucket:
      return "WriteBucket";
    case OpKind::kSumSquares:
      return "SumSquares";
    case OpKind::kSaveInput:
      return "SaveInput";
    case OpKind::kWriteInput:
      return "WriteInput";
    case OpKind::kReadInput:
      return "ReadInput";
    case OpKind::kFetchInput:
      return "FetchInput";
    case OpKind::kCommit:
      return "Commit";
    case OpKind::kBackwardWeights:
      return "BackwardWeights";
    case OpKind::kAddReplicas:
      return "AddReplicas";
    case OpKind::kSendActivation:
      return "SendActivation";
    case OpKind::kReceiveActivation:
      return "ReceiveActivation";
    case OpKind::kSendGradient:
      return "SendGradient";
    case OpKind::kReceiveGradient:
      return "ReceiveGradient";
  }
  return "?";
}

std::string_view name_of(Lane lane) {
  switch (lane) {
    case Lane::kCompute:
      return "compute";
    case Lane::kComm:
      return "comm";
    case Lane::kHost:
      return "host";
    case Lane::kToHost:
      return "d2h";
    case Lane::kToDevice:
      return "h2d";
    case Lane::kDisk:
      return "disk";
    case Lane::kPipe:
      return "pipe";
  }
  return "?";
}

}  // namespace sluice
