// The parts of the mapping of Megatron-LM's arguments. Only for megatron.cpp and
// megatron_map_*.cpp.
#pragma once

#include <cstdint>
#include <string>

#include "configs/migrate/peers/megatron_args.hpp"
#include "configs/migrate/peers/peer_map.hpp"

namespace sluice::migrate {

struct MegatronRun {
  const MegatronArgs& args;
  PeerMap& map;
  int world = 0;                  // 0: not known
  std::int64_t global_batch = 0;  // samples; 0: not known
  std::int64_t steps = 0;         // 0: not known
};

void map_megatron_model(MegatronRun& run);
void map_megatron_batch(MegatronRun& run);  // batch, steps; before the schedule
void map_megatron_schedule(MegatronRun& run);
void map_megatron_optimizer(MegatronRun& run);
void map_megatron_ranks(MegatronRun& run);   // mesh, stages, zero
void map_megatron_memory(MegatronRun& run);  // recompute, offload
void map_megatron_data(MegatronRun& run);
void map_megatron_output(MegatronRun& run);  // checkpoints, logs, evaluation

}  // namespace sluice::migrate
