// When and where a run is saved: the `checkpoint:` section.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

struct CheckpointOptions {
  std::string dir;  // empty: no checkpoints
  std::int64_t every = 0;
  int keep = 2;
  bool async = true;
};

}  // namespace sluice
