// The `checkpoint:` section: when and where a run saves.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

// An interval in steps or in time. At most one of the two is not 0; both 0 means never.
struct SaveInterval {
  std::int64_t steps = 0;
  double seconds = 0;
  friend bool operator==(const SaveInterval&, const SaveInterval&) = default;
};

struct CheckpointOptions {
  bool at_end = true;       // after the last step
  std::string dir = {};     // empty: output.dir/checkpoints
  SaveInterval every = {};  // never: the run saves only at its end
  int keep = 2;             // number of newest checkpoints that stay; 0: all
  bool async = true;
  double time_limit_seconds = 0;  // the run saves and stops before this run time; 0: no limit
};

}  // namespace sluice
