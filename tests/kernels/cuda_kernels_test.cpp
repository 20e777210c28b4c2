// The CUDA kernels against kernels/cpu, bit for bit where launch.hpp says so. Exit 77 without a
// GPU.
#include <cuda_runtime_api.h>

#include "kernels/cpu/fp8_core.hpp"
#include "kernels/cpu/reduce.hpp"
#include "kernels/cpu/update/remainder.hpp"
#include "kernels/cuda/block_launch.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/step_clip.hpp"
#include "kernels/cuda/sum_squares.hpp"
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

using HostUpdate = void(const UpdateSpan&);
using DeviceUpdate = void(const UpdateSpan*, int, const cuda::StepClip*, cuda::StreamRef);

// The same elements in up to 100 spans, some of them without elements: more than one launch holds.
std::vector<UpdateSpan> in_parts(const UpdateSpan& whole) {
  constexpr std::int64_t kParts = 100;
  std::vector<UpdateSpan> parts;
  const auto skip = [](auto* from, std::int64_t bytes) {
    using Bytes = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(from)>>,
                                     const std::byte, std::byte>;
    return static_cast<Bytes*>(from) + bytes;
  };
  for (std::int64_t i = 0; i < kParts; ++i) {
    const std::int64_t begin = whole.n * i / kParts, end = whole.n * (i + 1) / kParts;
    UpdateSpan& part = parts.emplace_back(whole);
    if (part.master != nullptr) part.master += begin;
    if (part.remainders != nullptr) {
      part.remainders += begin;
      part.weights = skip(part.weights, size_of(whole.weights_dtype) * begin);
    }
    for (void*& moment : part.moments) moment = skip(moment, size_of(whole.moments_dtype) * begin);
    part.rounding_element += begin;
    part.grad = skip(part.grad, size_of(whole.grad_dtype) * begin);
    part.weights_out = skip(part.weights_out, size_of(whole.weights_dtype) * begin);
    part.n = end - begin;
  }
  return parts;
}

// Of an update of `n` elements with gradients and weights of these types.
struct UpdateCase {
  std::int64_t n;
  DType grad_dtype;
  DType weights_dtype;
  DType moments;
  bool plain;
  bool splits = false;  // on the device bf16 weights and remainders stand for master weights
};

void expect_bits_of_the_cpu(HostUpdate& on_host, DeviceUpdate& on_device, const UpdateCase& c) {
  std::vector<float> p = normal_values(c.n, 1), squares = normal_values(c.n, 2, 0.1F);
  leave_ties(p.data(), c.n);
  std::vector<std::uint16_t> low(p.size());
  take_remainders(low.data(), p.data(), c.n);
  std::vector<std::byte> m = as_bytes(squares, c.moments);
  for (float& value : squares) value *= value;
  std::vector<std::byte> v = as_bytes(squares, c.moments);
  const std::vector<std::byte> grad = as_bytes(normal_values(c.n, 3), c.grad_dtype);
  std::vector<std::byte> weights = as_bytes(p, c.weights_dtype);
  const OnDevice p_gpu(p);
  const OnDevice low_gpu(low);
  const OnDevice m_gpu(m), v_gpu(v);
  const OnDevice grad_gpu(grad), weights_gpu(weights);
  UpdateSpan args{.master = p.data(),
                  .moments = {m.data(), v.data()},
                  .grad = grad.data(),
                  .grad_dtype = c.grad_dtype,
                  .weights_out = weights.data(),
                  .weights_dtype = c.weights_dtype,
                  .n = c.n,
                  .lr = 3e-3,
                  .weight_decay = 0.1,
                  .decoupled = c.plain,
                  .bias_correction = c.plain,
                  .step = 3,
                  .grad_scale = 0.37,
                  .moments_dtype = c.moments,
                  .rounding_seed = (std::uint64_t{9} << 40) + 7,
                  .rounding_element = (std::int64_t{1} << 36) + 29};
  on_host(args);
  args.master = c.splits ? nullptr : p_gpu.get();
  args.remainders = c.splits ? low_gpu.get() : nullptr;
  args.moments[0] = m_gpu.get();
  args.moments[1] = v_gpu.get();
  args.grad = grad_gpu.get();
  args.weights_out = weights_gpu.get();
  args.weights = c.splits ? args.weights_out : nullptr;
  args.grad_scale = 2;  // the clip in memory counts
  const std::vector<UpdateSpan> cut = in_parts(args);
  const OnDevice thrown_away(std::vector<cuda::StepClip>{{.grad_scale = 2, .updates = 0}});
  on_device(cut.data(), static_cast<int>(cut.size()), thrown_away.get(), kStream);
  const OnDevice clip(std::vector<cuda::StepClip>{{.grad_scale = 0.37F, .updates = 1}});
  on_device(cut.data(), static_cast<int>(cut.size()), clip.get(), kStream);
  if (c.splits) {
    take_remainders(low.data(), p.data(), c.n);
    EXPECT_EQ(low_gpu.read(), low);
  } else {
    EXPECT_EQ(p_gpu.read(), p);
  }
  EXPECT_EQ(m_gpu.read(), m);
  EXPECT_EQ(v_gpu.read(), v);
  EXPECT_EQ(weights_gpu.read(), weights);
}

// Moments in bf16 are rounded stochastically, and their gradients are fp32 or bf16.
void expect_bits_of_the_cpu(HostUpdate& on_host, DeviceUpdate& on_device, DType moments,
                            bool plain = true) {
  for (const std::int64_t n : kSizes) {
    for (const DType dtype : kDTypes) {
      const bool narrow = moments != DType::kFloat32 && dtype == DType::kFloat16;
      const DType grad_dtype = narrow ? DType::kFloat32 : dtype;
      expect_bits_of_the_cpu(on_host, on_device, {n, grad_dtype, dtype, moments, plain});
      if (dtype == DType::kFloat16) continue;
      expect_bits_of_the_cpu(on_host, on_device,
                             {n, grad_dtype, DType::kBFloat16, moments, plain, true});
    }
  }
}

TEST(CudaKernels, SumsOfSquaresHaveTheBitsOfTheCpu) {
  const std::vector<float> values = normal_values(1 << 20, 5, 3.0F);
  const std::vector<std::byte> rounded = as_bytes(values, DType::kBFloat16);
  const OnDevice on_device(values);
  const OnDevice in_bf16(rounded);
  std::vector<cuda::SquaresSpan> spans;
  std::vector<double> want;
  for (int i = 0; i < 300; ++i) {  // more than one launch holds
    const std::int64_t begin = 4096 * i % 100'000, elems = i % 7 == 0 ? 900'000 : 37 * i;
    if (i % 3 == 0) {
      spans.push_back({in_bf16.get() + 2 * begin, elems, DType::kBFloat16});
      want.push_back(sum_squares(rounded.data() + 2 * begin, DType::kBFloat16, elems));
      continue;
    }
    spans.push_back({on_device.get() + begin, elems});
    want.push_back(sum_squares(values.data() + begin, elems));
  }
  const int count = static_cast<int>(spans.size());
  const OnDevice scratch(
      std::vector<double>(static_cast<std::size_t>(cuda::squares_scratch(spans.data(), count))));
  const OnDevice sums(std::vector<double>(spans.size()));
  cuda::launch_sum_squares(spans.data(), count, scratch.get(), sums.get(), kStream);
  EXPECT_EQ(sums.read(), want);
}

class CudaUpdates : public ::testing::TestWithParam<DType> {};

TEST_P(CudaUpdates, AdamWHasTheBitsOfTheCpu) {
  expect_bits_of_the_cpu(adamw, cuda::launch_adamw, GetParam());
}
TEST_P(CudaUpdates, AdamWithL2HasTheBitsOfTheCpu) {
  expect_bits_of_the_cpu(adamw, cuda::launch_adamw, GetParam(), false);
}
TEST_P(CudaUpdates, LionHasTheBitsOfTheCpu) {
  expect_bits_of_the_cpu(lion, cuda::launch_lion, GetParam());
}
TEST_P(CudaUpdates, SgdHasTheBitsOfTheCpu) {
  expect_bits_of_the_cpu(sgd, cuda::launch_sgd, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Moments, CudaUpdates, ::testing::Values(DType::kFloat32, DType::kBFloat16),
                         [](const auto& moments) { return std::string(name_of(moments.param)); });

// The hardware's conversion against fp8_core.hpp, of values over the format's whole range.
template <class Format>
void expect_codes_of_the_cpu(Fp8Format format, bool turns) {
  constexpr std::int64_t kRows = 1000, kColumns = 112, kLength = 1008;
  std::vector<float> values = normal_values(kRows * kColumns, 6);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::ldexp(values[i], -static_cast<int>(i % 40));
  }
  const std::vector<std::byte> x = as_bytes(values, DType::kBFloat16);
  convert(values.data(), DType::kFloat32, x.data(), DType::kBFloat16, kRows * kColumns);
  std::vector<std::uint8_t> want(kRows * kColumns), want_turned(kColumns * kLength);
  const OnDevice x_gpu(x);
  const OnDevice parts{std::vector<std::uint32_t>(cuda::kFp8Parts)};
  const OnDevice codes(want), turned(want_turned);
  const OnDevice inverse{std::vector<float>(1)};
  cuda::Fp8Operands all;
  all.count = 1;
  all.of[0] = {x_gpu.get(),  kRows,       kColumns,    kColumns,
               format,       parts.get(), codes.get(), turns ? turned.get() : nullptr,
               inverse.get()};
  cuda::launch_fp8_quantise(all, kStream);
  std::uint32_t amax = 0;
  for (const float value : values) amax = std::max(amax, fp8::magnitude(value));
  for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
    const auto at = static_cast<std::size_t>(i);
    want[at] = fp8::encode<Format>(values[at] * fp8::scale_of<Format>(amax));
    want_turned[static_cast<std::size_t>(i % kColumns * kLength + i / kColumns)] = want[at];
  }
  EXPECT_EQ(codes.read(), want);
  if (turns) {
    EXPECT_EQ(turned.read(), want_turned);
  }
  EXPECT_EQ(inverse.read()[0], fp8::inverse_scale_of<Format>(amax));
}

TEST(CudaKernels, Fp8CodesAreThoseOfTheCpu) {
  for (const bool turns : {false, true}) {
    expect_codes_of_the_cpu<fp8::E4M3>(Fp8Format::kE4M3, turns);
    expect_codes_of_the_cpu<fp8::E5M2>(Fp8Format::kE5M2, turns);
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
