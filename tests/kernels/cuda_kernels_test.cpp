// The CUDA kernels against kernels/cpu, bit for bit where launch.hpp says so. Exit 77 without a
// GPU.
#include <cuda_runtime_api.h>

#include "kernels/cpu/philox.hpp"
#include "kernels/cpu/reduce.hpp"
#include "kernels/cuda/launch.hpp"
#include "tests/kernels/support.hpp"

namespace sluice::testing {
namespace {

constexpr cuda::StreamRef kStream{};

// A copy of a vector on the device.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values) : count_(values.size()) {
    EXPECT_EQ(cudaMalloc(&data_, bytes()), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  T* get() const { return static_cast<T*>(data_); }
  // Waits for what was launched.
  std::vector<T> read() const {
    std::vector<T> values(count_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }

 private:
  std::size_t bytes() const { return count_ * sizeof(T); }
  void* data_ = nullptr;
  std::size_t count_;
};

TEST(CudaKernels, AdamWHasTheBitsOfTheCpu) {
  for (const std::int64_t n : kSizes) {
    for (const DType dtype : kDTypes) {
      std::vector<float> p = normal_values(n, 1), m = normal_values(n, 2, 0.1F), v = m;
      for (float& value : v) value *= value;
      const std::vector<std::byte> grad = as_bytes(normal_values(n, 3), dtype);
      std::vector<std::byte> weights(grad.size());
      const OnDevice p_gpu(p), m_gpu(m), v_gpu(v);
      const OnDevice grad_gpu(grad), weights_gpu(weights);
      AdamWArgs args{.master = p.data(),
                     .m = m.data(),
                     .v = v.data(),
                     .grad = grad.data(),
                     .grad_dtype = dtype,
                     .weights_out = weights.data(),
                     .weights_dtype = dtype,
                     .n = n,
                     .lr = 3e-3,
                     .weight_decay = 0.1,
                     .step = 3,
                     .grad_scale = 0.37};
      adamw(args);
      args.master = p_gpu.get();
      args.m = m_gpu.get();
      args.v = v_gpu.get();
      args.grad = grad_gpu.get();
      args.weights_out = weights_gpu.get();
      cuda::launch_adamw(args, kStream);
      EXPECT_EQ(p_gpu.read(), p);
      EXPECT_EQ(m_gpu.read(), m);
      EXPECT_EQ(v_gpu.read(), v);
      EXPECT_EQ(weights_gpu.read(), weights);
    }
  }
}

TEST(CudaKernels, CastsHaveTheBitsOfTheCpu) {
  const std::vector<float> values = wild_values(50257, 7);
  const OnDevice source(values);
  for (const DType dtype : kDTypes) {
    const std::vector<std::byte> want = as_bytes(values, dtype);
    const OnDevice out(std::vector<std::byte>(want.size()));
    cuda::launch_convert(out.get(), dtype, source.get(), DType::kFloat32, 50257, kStream);
    EXPECT_EQ(out.read(), want);
    std::vector<float> acc = normal_values(50257, 8);
    const OnDevice acc_gpu(acc);
    const std::vector<std::byte> x = as_bytes(normal_values(50257, 9), dtype);
    const OnDevice x_gpu(x);
    add_to(acc.data(), x.data(), dtype, 50257, true);
    cuda::launch_add_to(acc_gpu.get(), x_gpu.get(), dtype, 50257, true, kStream);
    scale(acc.data(), 50257, 0.3F);
    cuda::launch_scale(acc_gpu.get(), 50257, 0.3F, kStream);
    EXPECT_EQ(acc_gpu.read(), acc);
  }
}

TEST(CudaKernels, RandomStreamsHaveTheBitsOfTheCpu) {
  for (const std::int64_t first : {0L, 3L, (1L << 34) + 5}) {
    std::vector<float> normal(10007);
    std::vector<std::uint8_t> mask(10007);
    const OnDevice normal_gpu(normal);
    const OnDevice mask_gpu(mask);
    fill_normal(normal, 42, 7, first, 0.5F, 0.02F);
    fill_dropout_mask(std::span(mask), 42, 7, first, 0.1);
    cuda::launch_fill_normal(normal_gpu.get(), 10007, 42, 7, first, 0.5F, 0.02F, kStream);
    cuda::launch_dropout_mask(mask_gpu.get(), 10007, 42, 7, first, 0.1, kStream);
    EXPECT_EQ(normal_gpu.read(), normal);
    EXPECT_EQ(mask_gpu.read(), mask);
  }
}

TEST(CudaKernels, SumSquaresIsRightAndReproducible) {
  for (const std::int64_t n : kSizes) {
    const std::vector<float> x = normal_values(n, 5);
    const OnDevice x_gpu(x);
    const OnDevice work(
        std::vector<double>(static_cast<std::size_t>(cuda::sum_squares_workspace())));
    const OnDevice result(std::vector<double>(2));
    for (int i = 0; i < 2; ++i) {
      cuda::launch_sum_squares(result.get() + i, work.get(), x_gpu.get(), DType::kFloat32, n,
                               kStream);
    }
    const std::vector<double> got = result.read();
    const double want = sum_squares(x.data(), n);
    EXPECT_EQ(got[0], got[1]);
    EXPECT_NEAR(got[0], want, 1e-13 * want);
  }
}

TEST(CudaKernels, CrossEntropyMatchesTheCpu) {
  for (const std::int64_t vocab : kSizes) {
    const std::int64_t stride = vocab + 5;
    std::vector<float> logits = normal_values(3 * stride, 6, 3.0F);
    const std::vector<std::int64_t> targets{vocab / 2, kIgnoreTarget, vocab - 1};
    const OnDevice logits_gpu(logits);
    const OnDevice targets_gpu(targets);
    const OnDevice losses(std::vector<double>(3));
    CrossEntropyArgs args{.logits = logits.data(),
                          .rows = 3,
                          .row_stride = stride,
                          .vocab = vocab,
                          .width = vocab + 2,
                          .targets = targets.data(),
                          .scale = 0.5F};
    const double want = softmax_cross_entropy(args);
    args.logits = logits_gpu.get();
    args.targets = targets_gpu.get();
    cuda::launch_softmax_cross_entropy(args, losses.get(), kStream);
    const std::vector<double> got = losses.read();
    EXPECT_NEAR(got[0] + got[1] + got[2], want, 1e-6 * std::abs(want) + 1e-6);
    const std::vector<float> gradient = logits_gpu.read();
    for (std::size_t i = 0; i < logits.size(); ++i) {
      EXPECT_NEAR(gradient[i], logits[i], 1e-6 * std::abs(logits[i]) + 1e-9) << i;
    }
  }
}

}  // namespace
}  // namespace sluice::testing

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("skipped: no CUDA GPU");
    return 77;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
