#include "configs/unavailable.hpp"

namespace sluice {

const std::vector<Unavailable>& unavailable() {
  using Run = const RunConfig&;
  static const std::vector<Unavailable> rows{
      {"output.tensorboard", [](Run r) { return r.output.tensorboard; },
       "leave it out: metrics.jsonl holds every step"},
  };
  return rows;
}

}  // namespace sluice
