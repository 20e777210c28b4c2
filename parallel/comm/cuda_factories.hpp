// Functions of parallel/comm that the CUDA module exports. C names with C++ types: the program and
// the module come from one build.
#pragma once

#include <string_view>

#include "base/failpoint.hpp"

namespace sluice {

class Communicator;
struct CommOptions;

struct NcclSettings {
  int most_channels = 0;       // NCCL's maxCTAs
  bool connects_late = false;  // connects at the first operation, not in the factory
  bool one_way = false;        // a link of two ranks: rank 0 sends, rank 1 receives
  // The program's failpoint(). The module's own copy of failpoint() is never armed.
  FailpointOutcome (*failpoint)(std::string_view name) = nullptr;
};

// Takes ownership of `control`, a host-memory communicator of the same ranks, even if it throws.
using MakeNcclCommunicator = Communicator*(const CommOptions& options, Communicator* control,
                                           const NcclSettings& settings);
inline constexpr char kMakeNcclCommunicator[] = "sluice_make_nccl_communicator";

}  // namespace sluice
