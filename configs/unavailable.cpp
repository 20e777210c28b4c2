#include "configs/unavailable.hpp"

namespace sluice {

const std::vector<Unavailable>& unavailable() {
  using Run = const RunConfig&;
  static const std::vector<Unavailable> rows{
      {"model.from", [](Run r) { return !r.model.from.empty(); },
       "leave it out: training starts from fresh weights"},
      {"train.accumulation_order",
       [](Run r) { return r.train.accumulation_order == AccumulationOrder::kLayer; },
       "available: micro"},
      {"offload.optimizer", [](Run r) { return r.offload.optimizer != Tier::kDevice; },
       "available: device"},
      {"offload.parameters", [](Run r) { return r.offload.parameters != Tier::kDevice; },
       "available: device"},
      {"offload.gradients", [](Run r) { return r.offload.gradients != Tier::kDevice; },
       "available: device"},
      {"offload.activations", [](Run r) { return r.offload.activations != Tier::kDevice; },
       "available: device"},
      {"offload.nvme_path", [](Run r) { return !r.offload.nvme_path.empty(); },
       "leave it out: all state lives on the device"},
      {"offload.device_fraction", [](Run r) { return r.offload.device_fraction != 0; },
       "leave it out: all state lives on the device"},
      {"offload.states_dtype", [](Run r) { return r.offload.states_dtype != DType::kFloat32; },
       "available: fp32"},
      {"recompute.mode", [](Run r) { return r.recompute.mode == RecomputeMode::kSelective; },
       "available: none, full"},
      {"parallel.tensor", [](Run r) { return r.parallel.tensor > 1; }, "available: 1"},
      {"parallel.sequence", [](Run r) { return r.parallel.sequence; }, "available: false"},
      {"parallel.pipeline", [](Run r) { return r.parallel.pipeline > 1; }, "available: 1"},
      {"parallel.virtual_stages", [](Run r) { return r.parallel.virtual_stages > 1; },
       "available: 1"},
      {"parallel.schedule", [](Run r) { return r.parallel.schedule != PipelineSchedule::k1f1b; },
       "leave it out: there is no pipeline to schedule"},
      {"memory.host", [](Run r) { return r.memory.host > 0; }, "available: none"},
      {"memory.nvme", [](Run r) { return r.memory.nvme > 0; }, "available: none"},
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
