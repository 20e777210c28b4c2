// When and where a run is saved: the `checkpoint:` section.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

// How often: in steps or in time. At most one of them is not 0; both 0: never.
struct SaveInterval {
  std::int64_t steps = 0;
  double seconds = 0;
  friend bool operator==(const SaveInterval&, const SaveInterval&) = default;
};

struct CheckpointOptions {
  bool at_end = true;       // after the last step
  std::string dir = {};     // empty: output.dir/checkpoints
  SaveInterval every = {};  // never: only at the end
  int keep = 2;             // the newest so many stay; 0: all
  bool async = true;
  double time_limit_seconds = 0;  // the run saves and stops before it has run so long; 0: none
};

}  // namespace sluice
