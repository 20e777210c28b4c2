#include "configs/unavailable.hpp"

namespace sluice {

const std::vector<Unavailable>& unavailable() {
  using Run = const RunConfig&;
  static const std::vector<Unavailable> rows{
      {"parallel.tensor", [](Run r) { return r.parallel.tensor > 1; }, "available: 1"},
      {"parallel.sequence", [](Run r) { return r.parallel.sequence; }, "available: false"},
      {"parallel.pipeline", [](Run r) { return r.parallel.pipeline > 1; }, "available: 1"},
      {"parallel.virtual_stages", [](Run r) { return r.parallel.virtual_stages > 1; },
       "available: 1"},
      {"parallel.schedule", [](Run r) { return r.parallel.schedule != PipelineSchedule::k1f1b; },
       "leave it out: there is no pipeline to schedule"},
      {"launch.hostfile", [](Run r) { return !r.launch.hostfile.empty(); },
       "for several hosts set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT of each rank"},
      {"launch.backend", [](Run r) { return r.launch.backend == Backend::kLocal; },
       "available: auto, nccl, gloo"},
      {"output.tensorboard", [](Run r) { return r.output.tensorboard; },
       "leave it out: metrics.jsonl holds every step"},
  };
  return rows;
}

}  // namespace sluice
