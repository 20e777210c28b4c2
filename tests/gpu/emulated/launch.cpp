#include "tests/gpu/emulated/launch.hpp"

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/emulated/block.hpp"
#include "tests/gpu/null/launches.hpp"

namespace emulated_gpu {
namespace {

void run_grid(const Launch& launch, const std::function<void()>& thread) {
  Schedule schedule(std::getenv("NULL_GPU_COMPUTES"), launch.kernel);
  Block block(launch.kernel, launch.grid, launch.block, &schedule);
  const dim3& grid = launch.grid;
  std::vector<std::uint32_t> order;
  schedule.arrange(order, grid.x * grid.y * grid.z);
  for (const std::uint32_t i : order) {
    if (!block.run({i % grid.x, i / grid.x % grid.y, i / (grid.x * grid.y)}, thread)) return;
  }
}

}  // namespace

// One copy of the arguments for all copies of the task.
void launch(const Launch& launch, std::function<void()> thread) {
  if (!null_gpu::computes()) {
    throw std::runtime_error(
        "the emulated CUDA module needs a null GPU that computes; set NULL_GPU_COMPUTES to early, "
        "late or a number, or take the module that nvcc built");
  }
  const auto shared = std::make_shared<const std::function<void()>>(std::move(thread));
  (void)null_gpu::launch_computed({.kernel = launch.kernel,
                                   .grid = launch.grid,
                                   .block = launch.block,
                                   .shared_bytes = launch.shared_bytes,
                                   .stream = launch.stream,
                                   .task = [launch, shared] {
                                     run_grid(launch, *shared);
                                     return true;
                                   }});
}

}  // namespace emulated_gpu
