// Functions of parallel/comm that the CUDA module exports. C names with C++ types: the program and
// the module come from one build.
#pragma once

namespace sluice {

class Communicator;
struct CommOptions;

// Takes ownership of `control`, a host-memory communicator of the same ranks, even if it throws.
// `most_channels`: of NCCL; 0: its own choice.
using MakeNcclCommunicator = Communicator*(const CommOptions& options, Communicator* control,
                                           int most_channels);
inline constexpr char kMakeNcclCommunicator[] = "sluice_make_nccl_communicator";

}  // namespace sluice
