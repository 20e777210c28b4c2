// What the CUDA module exports of parallel/comm. C names, C++ types: both sides are of one build.
#pragma once

namespace sluice {

class Communicator;
struct CommOptions;

// Takes `control`, a communicator of the same ranks for host memory, also when it throws.
using MakeNcclCommunicator = Communicator*(const CommOptions& options, Communicator* control);
inline constexpr char kMakeNcclCommunicator[] = "sluice_make_nccl_communicator";

}  // namespace sluice
