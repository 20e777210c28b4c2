// Functions of parallel/comm that the CUDA module exports. C names with C++ types: the program and
// the module come from one build.
#pragma once

#include <string_view>

#include "base/failpoint.hpp"

namespace sluice {

class Communicator;
struct CommOptions;

struct NcclSettings {
  int most_channels = 0;       // of NCCL
  bool connects_late = false;  // at the first operation
  bool one_way = false;        // of two ranks: rank 0 sends, rank 1 receives
  // The program's failpoint(): the module has a copy of its own, which nobody arms.
  FailpointOutcome (*failpoint)(std::string_view name) = nullptr;
};

// Takes ownership of `control`, a host-memory communicator of the same ranks, even if it throws.
using MakeNcclCommunicator = Communicator*(const CommOptions& options, Communicator* control,
                                           const NcclSettings& settings);
inline constexpr char kMakeNcclCommunicator[] = "sluice_make_nccl_communicator";

}  // namespace sluice
