#include "runtime/engine/ops/step_scalars.hpp"

#include <cstring>
#include <utility>

#include "kernels/cuda/step_scalars.hpp"
#include "runtime/engine/ops/batch_ops.hpp"
#include "runtime/engine/ops/step_run.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {

StepScalars::StepScalars(const StepParts& parts, BatchOps& batches)
    : setup_(parts.setup), run_(parts.run), batches_(batches) {
  if (parts.graphs == nullptr) return;
  device_ = empty_tensor({sizeof(cuda::StepScalars)}, c10::ScalarType::Byte, setup_.device);
}

// libtorch keeps each step's registered memory until its copy has completed, so no step overwrites
// numbers that are still to be copied.
void StepScalars::write() {
  if (!device_.defined() || !run_.training() || std::exchange(written_, true)) return;
  const cuda::StepScalars scalars{.step = static_cast<std::uint64_t>(run_.index),
                                  .loss_factor = static_cast<float>(batches_.loss_factor())};
  const at::Tensor host = empty_tensor(device_.sizes(), c10::ScalarType::Byte).pin_memory();
  std::memcpy(host.data_ptr(), &scalars, sizeof scalars);
  device_.copy_(host, /*non_blocking=*/true);
}

const cuda::StepScalars* StepScalars::on_device() const {
  return device_.defined() ? static_cast<const cuda::StepScalars*>(device_.data_ptr()) : nullptr;
}

}  // namespace sluice
