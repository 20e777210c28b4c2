#include "runtime/engine/ops/program_memory.hpp"

#include <utility>

#include "runtime/engine/device_memory.hpp"
#include "runtime/engine/engine_setup.hpp"

namespace sluice {

ProgramMemory::ProgramMemory(const EngineSetup& setup, std::int64_t arena_bytes, at::Tensor staging)
    : bucket_staging(std::move(staging)) {
  const StepPlan& plan = setup.plan;
  const DeviceMemory memory(setup.device, setup.data().maps_host_memory());
  const DeviceMemory of_world(setup.device, setup.world().maps_host_memory());
  arena = memory.block(arena_bytes, c10::ScalarType::Byte, BlockUse::kCollective);
  replica_staging = of_world.block(plan.shape.replica_staging_bytes / 4, c10::ScalarType::Float,
                                   BlockUse::kCollective);
}

}  // namespace sluice
