// The meta device's count of a unit against the host allocator's: to the byte in fp32.
#include "runtime/model/unit_profile.hpp"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "runtime/model/counting_allocator.hpp"
#include "runtime/model/tensor_view.hpp"
#include "tests/runtime/model/golden.hpp"

namespace sluice::testing {
namespace {

struct Real {
  std::int64_t kept = 0;
  std::int64_t forward_peak = 0;
  std::int64_t backward_peak = 0;
};

AllocationCount host() { return allocation_count(CountedDevice::kHost); }

Real run_block(const Model& model, std::int64_t batch, DType dtype) {
  const auto options = at::TensorOptions().dtype(scalar_type(dtype));
  const ModelOptions& o = model.spec.options;
  std::vector<at::Tensor> params;
  for (const ParamSpec& param : model.spec.groups[2].params) {
    params.push_back(at::empty(param.tensor.shape, options).fill_(0.01));
  }
  const at::Tensor x = at::empty({batch, o.seq, o.hidden}, options).fill_(0.5);
  const at::Tensor dy = at::empty({batch, o.seq, o.hidden}, options).fill_(0.1);
  CollectingSink sink(params);
  const UnitCall call{.training = true};
  Real real;
  std::int64_t start = host().live;
  reset_allocation_peak(CountedDevice::kHost);
  std::unique_ptr<Saved> saved;
  at::Tensor y = model.units[1]->forward(call, params, x, &saved);
  real.forward_peak = host().peak - start;
  real.kept = host().live - start - y.numel() * static_cast<std::int64_t>(y.element_size());
  y.reset();
  start = host().live;
  reset_allocation_peak(CountedDevice::kHost);
  (void)model.units[1]->backward(call, params, x, std::move(saved), dy, sink);
  real.backward_peak = host().peak - start;
  return real;
}

TEST(UnitProfile, EqualsTheRealRun) {
  install_counting_allocators();
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const double dropout : {0.0, 0.1}) {
      ModelOptions options{.layers = 1, .hidden = 192, .heads = 6, .vocab = 64, .seq = 200};
      options.dropout = dropout;
      const Model model = make_model(options);
      const Real real = run_block(model, 3, dtype);
      const UnitMemory meta =
          profile_unit(model, 1, {.micro_batch = 3, .seq = 200, .dtype = dtype});
      const std::string what = std::string(name_of(dtype)) + " dropout " + std::to_string(dropout);
      EXPECT_EQ(meta.kept, real.kept) << what;
      // Numbers that libtorch wraps in 0-dim tensors come from the host's allocator only.
      constexpr std::int64_t kScalars = 64;
      EXPECT_LE(std::abs(real.forward_peak - meta.forward_peak), kScalars) << what;
      // oneDNN's 16-bit products take scratch of their own, so backward is compared in fp32; whole
      // 16-bit steps are in engine/memory_test.cpp.
      if (dtype == DType::kFloat32) {
        EXPECT_LE(std::abs(real.backward_peak - meta.backward_peak), kScalars) << what;
      }
    }
  }
}

TEST(UnitProfile, NeedsNoMemoryForAModelThatFitsNowhere) {
  const ModelOptions options{
      .layers = 2, .hidden = 16384, .heads = 128, .vocab = 200'000, .seq = 8192};
  const Model model = make_model(options);
  const UnitMemory block = profile_unit(model, 1, {.micro_batch = 4, .seq = 8192});
  // 16 hidden-sized elements a token (facts of a GPT-2 block in autograd), of 4 bytes.
  const std::int64_t hidden_sized = 4LL * 8192 * 16384 * 4;
  EXPECT_GT(block.kept + block.output, 14 * hidden_sized);
  EXPECT_LT(block.kept + block.output, 18 * hidden_sized);
}

}  // namespace
}  // namespace sluice::testing
