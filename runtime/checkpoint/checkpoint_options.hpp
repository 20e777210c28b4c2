// When and where a run is saved: the `checkpoint:` section.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

struct CheckpointOptions {
  std::string dir;         // empty: no checkpoints
  std::int64_t every = 0;  // steps between checkpoints; 0: only at the end
  int keep = 2;            // the newest so many stay; 0: all
  bool async = true;
};

}  // namespace sluice
