// Functions of parallel/comm that the CUDA module exports. C names with C++ types: the program and
// the module come from one build.
#pragma once

namespace sluice {

class Communicator;
struct CommOptions;

// Takes ownership of `control`, a host-memory communicator of the same ranks, even if it throws.
using MakeNcclCommunicator = Communicator*(const CommOptions& options, Communicator* control);
inline constexpr char kMakeNcclCommunicator[] = "sluice_make_nccl_communicator";

}  // namespace sluice
