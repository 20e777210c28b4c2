#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <memory>
#include <mutex>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "kernels/cpu/parallel.hpp"
#include "runtime/engine/gpu_memory.hpp"
#include "runtime/model/math/explicit_linear.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/run/machine.hpp"

namespace sluice {
namespace {

class OneThread {
 public:
  OneThread() : torch_(at::get_num_threads()), compute_(compute_threads()) { set(1, 1); }
  ~OneThread() { set(torch_, compute_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  static void set(int torch, int compute) {
    at::set_num_threads(torch);
    set_compute_threads(compute);
  }
  const int torch_;
  const int compute_;
};

// Processor time of this thread, without the time of other processes.
double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Time of `work` on this thread and the threads that share its operations. If this thread waited
// for a core, returns its processor time: operations are divided equally among threads.
template <class F>
double undisturbed_seconds(F&& work) {
  constexpr double kDisturbed = 0.8;  // share of wall time; imbalance alone stays above
  const double began = thread_seconds();
  const auto begin = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const double computed = thread_seconds() - began;
  return computed < kDisturbed * took.count() ? computed : took.count();
}

// A linear layer with its gradients, and the time of a forward and backward.
class TimedLayer {
 public:
  TimedLayer(DType dtype, const LinearShape& shape) : shape_(shape) {
    const at::TensorOptions narrow = at::TensorOptions().dtype(scalar_type(dtype));
    x_ = at::empty({shape.rows, shape.in}, narrow).fill_(0.5);
    dx_ = at::empty_like(x_);
    y_ = at::empty({shape.rows, shape.out}, narrow);
    weight_ = at::empty({shape.out, shape.in}, narrow).fill_(0.01);
    bias_ = at::empty({shape.out}, narrow).fill_(0.5);
    gradient_ = {at::empty({shape.out, shape.in}, at::kFloat).fill_(0.5), true};
  }

  // FLOP/s of a pass over `rows` rows.
  double rate(std::int64_t rows, MatmulType type) {
    const at::Tensor x = x_.narrow(0, 0, rows);
    const at::Tensor y = y_.narrow(0, 0, rows);
    const MatmulMode mode(type);
    const double begin = thread_seconds();
    linear(y, x, weight_, bias_);
    linear_weight_gradient(gradient_, y, x);
    linear_input_gradient(dx_.narrow(0, 0, rows), y, weight_, false);
    const double took = thread_seconds() - begin;
    return 3 * 2 * static_cast<double>(rows * shape_.in * shape_.out) / took;
  }

 private:
  const LinearShape shape_;
  at::Tensor x_, dx_, y_, weight_, bias_;
  GradTarget gradient_;
};

}  // namespace

void set_libtorch_threads(int threads) {
  at::set_num_threads(threads);
  static std::once_flag once;  // libtorch accepts this number only once
  std::call_once(once, [] { at::set_num_interop_threads(1); });
}

namespace {

// Two square matrices and their product.
class TimedProduct {
 public:
  TimedProduct(std::int64_t n, const at::TensorOptions& options)
      : a_(factor(n, options)), b_(factor(n, options)), c_(at::empty({n, n}, options)) {
    (void)once();  // the libraries make or load their kernels in the first call
  }

  // The best of `tries`, in FLOP/s.
  double rate(int tries) {
    double best = 0;
    for (int i = 0; i < tries; ++i) best = std::max(best, once());
    return best;
  }

 private:
  // A GPU's clock depends on the values. A CPU's does not, and random numbers would take longer
  // than the products.
  static at::Tensor factor(std::int64_t n, const at::TensorOptions& options) {
    const at::Tensor matrix = at::empty({n, n}, options);
    return matrix.is_cuda() ? matrix.normal_() : matrix.fill_(0.5);
  }

  double once() {
    const auto side = static_cast<double>(c_.size(0));
    const double flops = 2 * side * side * side;
    if (!c_.is_cuda()) return flops / undisturbed_seconds([&] { at::mm_out(c_, a_, b_); });
    const auto begin = std::chrono::steady_clock::now();
    at::mm_out(c_, a_, b_);
    (void)c_[0][0].item<float>();  // the host waits for the product
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    return flops / took.count();
  }

  at::Tensor a_, b_, c_;
};

double gemm_rate(DType dtype, at::Device device) {
  // Some CPUs, and the emulated GPU, need half a minute for a full-size product. The loop below and
  // the tries after it take ten times this limit at most. Every rank measures when it starts. A
  // CPU's rate hardly changes from products of a millisecond on.
  const bool smallest = failpoint("machine.gemm_rate") == FailpointOutcome::kPoison;
  const double longest = smallest ? 0 : device.is_cuda() ? 0.03 : 0.008;  // seconds
  const std::int64_t largest = device.is_cuda() ? 8192 : 1024;
  // A GPU's product is timed by the host, which may lose its core meanwhile. One slow try would end
  // the loop at a small size, with a rate that is far too low.
  const int tries = device.is_cuda() ? 3 : 1;
  const auto options = at::TensorOptions().dtype(scalar_type(dtype)).device(device);
  std::int64_t n = 64;
  auto product = std::make_unique<TimedProduct>(n, options);
  double best = product->rate(tries);
  while (n < largest && 16 * std::pow(static_cast<double>(n), 3) < longest * best) {
    n *= 2;
    product = std::make_unique<TimedProduct>(n, options);
    best = std::max(best, product->rate(tries));
  }
  return product->rate(5);
}

}  // namespace

double measure_gemm_rate(DType dtype, at::Device device) {
  try {
    const double rate = gemm_rate(dtype, device);
    // A GPU's allocator would keep the matrices' blocks, which the run may not be able to use.
    if (device.is_cuda()) return_reserved_memory(device);
    return rate;
  } catch (const c10::OutOfMemoryError&) {
    throw BudgetError(device.str() +
                      " has no room for the matrices that its rate of products is measured with; "
                      "leave 1 GiB of the card free");
  }
}

MatmulRates measure_matmul_rates(DType dtype, const LinearShape& shape) {
  constexpr double kSeconds = 0.25;
  constexpr LinearShape kLargest{.rows = 1024, .in = 512, .out = 1024};
  const OneThread one_thread;
  const LinearShape piece{std::min(shape.rows, kLargest.rows), std::min(shape.in, kLargest.in),
                          std::min(shape.out, kLargest.out)};
  TimedLayer layer(dtype, piece);
  const double begin = thread_seconds();
  // The libraries make their kernels in the first call. Some CPUs take seconds for a full-size
  // 16-bit product, so the number of rows grows as time allows.
  std::int64_t rows = std::min<std::int64_t>(piece.rows, 8);
  for (const MatmulType type : {MatmulType::kNative, MatmulType::kFp32}) {
    (void)layer.rate(rows, type);
  }
  MatmulRates best;
  for (bool more = true; more;) {
    const double round = thread_seconds();
    best.native = std::max(best.native, layer.rate(rows, MatmulType::kNative));
    best.fp32 = std::max(best.fp32, layer.rate(rows, MatmulType::kFp32));
    const double end = thread_seconds();
    const std::int64_t next = std::min(2 * rows, piece.rows);
    const double expected = (end - round) * static_cast<double>(next) / static_cast<double>(rows);
    more = end - begin + expected < kSeconds;
    rows = next;
  }
  return best;
}

std::int64_t peak_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * std::int64_t{1024};
}

}  // namespace sluice
