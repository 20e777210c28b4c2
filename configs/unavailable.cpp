#include "configs/unavailable.hpp"

namespace sluice {

const std::vector<Unavailable>& unavailable() {
  using Run = const RunConfig&;
  static const std::vector<Unavailable> rows{
      {"model.from", [](Run r) { return !r.model.from.empty(); },
       "leave it out: training starts from fresh weights"},
      {"parallel.tensor", [](Run r) { return r.parallel.tensor > 1; }, "available: 1"},
      {"parallel.sequence", [](Run r) { return r.parallel.sequence; }, "available: false"},
      {"parallel.pipeline", [](Run r) { return r.parallel.pipeline > 1; }, "available: 1"},
      {"parallel.virtual_stages", [](Run r) { return r.parallel.virtual_stages > 1; },
       "available: 1"},
      {"parallel.schedule", [](Run r) { return r.parallel.schedule != PipelineSchedule::k1f1b; },
       "leave it out: there is no pipeline to schedule"},
      {"checkpoint.dir", [](Run r) { return !r.checkpoint.dir.empty(); },
       "leave it out: a run cannot be saved yet"},
      {"checkpoint.every", [](Run r) { return r.checkpoint.every > 0; },
       "leave it out: a run cannot be saved yet"},
      {"launch.hostfile", [](Run r) { return !r.launch.hostfile.empty(); },
       "for several hosts set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT of each rank"},
      {"launch.max_restarts", [](Run r) { return r.launch.max_restarts > 0; }, "available: 0"},
      {"launch.backend", [](Run r) { return r.launch.backend == Backend::kLocal; },
       "available: auto, nccl, gloo"},
      {"output.tensorboard", [](Run r) { return r.output.tensorboard; },
       "leave it out: metrics.jsonl holds every step"},
  };
  return rows;
}

}  // namespace sluice
