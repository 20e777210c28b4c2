// The mesh: the `parallel:` section.
#pragma once

#include <cstdint>

namespace sluice {

struct ParallelOptions {
  int tensor = 1;
  bool sequence = false;
  int pipeline = 1;
  int virtual_stages = 1;
  int data = 0;  // 0: auto = world / (tensor x pipeline)
};

}  // namespace sluice
