// The norm of gradients on a GPU, by the CUDA module. Used by one thread, whose current stream does
// not change. Functions throw Error.
#pragma once

#include <cstdint>
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
  // Enqueues the sum of squares of each span, with the bits of sum_squares() on the host, to places
  // [first, first + spans.size()) of the object's sums.
  virtual void sum(std::span<const cuda::SquaresSpan> spans, std::int64_t first) = 0;
  // Sets `values` to the first sums, and the last of `values` to `losses`, which are on the GPU.
  // The host waits once for all.
  virtual void read(std::span<const double> losses, std::span<double> values) = 0;
  // Enqueues the step's decision (decide_step) by the first `count` sums, and its copy to the host.
  // Does not wait.
  virtual void decide(std::int64_t count, std::span<const double> losses,
                      const cuda::ClipInput& input) = 0;
  // Device address of the result of decide(), for updates that are enqueued behind decide(). The
  // address is the same in all steps.
  [[nodiscard]] virtual const cuda::StepClip* decision() const = 0;
  // The result of the last decide(). The host waits for decide(), but not for work enqueued behind
  // decide().
  [[nodiscard]] virtual cuda::StepClip wait() = 0;
  // Enqueues a decision by sums [first, first + count) alone, and returns its device address, for
  // updates that are enqueued before the next call. Does not wait.
  [[nodiscard]] virtual const cuda::StepClip* decide_part(std::int64_t first, std::int64_t count,
                                                          std::span<const double> losses,
                                                          const cuda::ClipInput& input) = 0;
};

}  // namespace sluice
