// The norm of gradients on a GPU, by the CUDA module. One thread's, whose current stream stays the
// same. Functions throw Error.
#pragma once

#include <span>

namespace sluice::cuda {
struct ClipInput;
struct SquaresSpan;
struct StepClip;
}  // namespace sluice::cuda

namespace sluice {

class DeviceNorm {
 public:
  virtual ~DeviceNorm() = default;
  // Sets `values` to the sum of squares of each span, with the bits of sum_squares() on the host,
  // and behind them to `losses`, which are on the GPU. The host waits once for all.
  virtual void read(std::span<const cuda::SquaresSpan> spans, std::span<const double> losses,
                    std::span<double> values) = 0;
  // Enqueues the sums, the step's decision (decide_step) and its copy to the host. Does not wait.
  virtual void decide(std::span<const cuda::SquaresSpan> spans, std::span<const double> losses,
                      const cuda::ClipInput& input) = 0;
  // For updates that are enqueued behind decide(). One address for all steps.
  [[nodiscard]] virtual const cuda::StepClip* decision() const = 0;
  // Of the last decide(); the host waits once, and not for what was enqueued behind it.
  [[nodiscard]] virtual cuda::StepClip wait() = 0;
};

}  // namespace sluice
