// How ranks are started: the `launch:` section.
#pragma once

#include <string>

namespace sluice {

enum class Backend { kAuto, kNccl, kGloo, kLocal };

struct LaunchOptions {
  int nproc = 0;  // ranks on this host; 0: the GPUs, or 1
  std::string hostfile;
  Backend backend = Backend::kAuto;
  int max_restarts = 0;
  double timeout_seconds = 600;  // of one collective, and of the start of all ranks
  int threads = 0;               // compute threads of a rank; 0: the cores divided by nproc
};

}  // namespace sluice
