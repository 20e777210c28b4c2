// Products of 8-bit operands on a CPU: against double products of the rounded operands, against the
// native products, and in whole blocks.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/cpu/fp8.hpp"
#include "runtime/model/blocks/explicit_units.hpp"
#include "runtime/model/counting_allocator.hpp"
#include "runtime/model/math/explicit_linear.hpp"
#include "tests/runtime/model/block_run.hpp"
#include "tests/runtime/model/layer_products.hpp"

namespace sluice::testing {
namespace {

using at::Tensor;
constexpr auto kDouble = c10::ScalarType::Double;
constexpr auto kBf16 = c10::ScalarType::BFloat16;

// Its tensors have scales of their own.
Layer layer_of(const LayerSizes& sizes) {
  Layer layer(sizes, kBf16, {.x = 3.0, .dy = 1e-5, .weight = 0.02});
  layer.dx_before = layer.dy.sum().expand(layer.x.sizes());
  return layer;
}

constexpr Tensor Products::*kRounded[] = {&Products::y, &Products::plain, &Products::dx,
                                          &Products::dx_twice};
constexpr Tensor Products::*kGradients[] = {&Products::grad, &Products::grad_twice};

Tensor rounded(const Tensor& x, Fp8Format format) {
  const Tensor rows = x.contiguous();
  const Tensor out = at::empty(rows.sizes(), rows.options());
  round_to_fp8(static_cast<std::uint16_t*>(out.data_ptr()),
               {static_cast<const std::uint16_t*>(rows.data_ptr()), rows.size(0), rows.size(1),
                rows.size(1)},
               format);
  return out.to(kDouble);
}

Products exact(const Layer& layer) {
  return exact_products(layer, {.x = rounded(layer.x, Fp8Format::kE4M3),
                                .dy = rounded(layer.dy, Fp8Format::kE5M2),
                                .weight = rounded(layer.weight, Fp8Format::kE4M3)});
}

TEST(Fp8Linear, MultipliesTheRoundedOperands) {
  for (const LayerSizes& sizes :
       {LayerSizes{1, 16, 16}, {5, 7, 3}, {130, 96, 48}, {300, 33, 257}}) {
    const std::int64_t rows = sizes.rows;
    const Layer layer = layer_of(sizes);
    const Products want = exact(layer);
    const Products ours = products(layer, MatmulType::kFp8);
    const Products native = products(layer, MatmulType::kNative);
    for (const auto part : kRounded) {  // to bf16
      EXPECT_LT(relative_error(ours.*part, want.*part), 0x1p-8) << rows;
    }
    for (const auto part : kGradients) {
      EXPECT_LT(relative_error(ours.*part, want.*part), 2e-6) << rows;
    }
    // An element is off by 1/16 at most in E4M3 and 1/8 in E5M2; a sum's terms cancel.
    for (const auto part : {&Products::plain, &Products::dx, &Products::grad}) {
      EXPECT_LT(relative_error(ours.*part, native.*part), 0.12) << rows;
      EXPECT_GT(relative_error(ours.*part, native.*part), 1e-3) << rows;
    }
  }
}

TEST(Fp8Linear, BitsDoNotDependOnThreads) {
  expect_equal_bits_on_threads(layer_of({300, 512, 130}), MatmulType::kFp8);
}

TEST(Fp8Linear, AnOperandThatIsNotFiniteMakesAllResultsNan) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    Layer layer = layer_of({5, 32, 16});
    layer.weight.select(0, 3).select(0, 7).fill_(bad);
    const Products p = products(layer, MatmulType::kFp8);
    EXPECT_TRUE(p.y.isnan().all().item<bool>());
    EXPECT_TRUE(p.dx.isnan().all().item<bool>());
    EXPECT_FALSE(p.grad.isnan().any().item<bool>());
  }
}

// Beside the tiles of the product in fp32.
TEST(Fp8Linear, RoundedOperandsAreScratchThatADryRunCounts) {
  install_counting_allocators();
  const auto peak = [](CountedDevice counted, at::Device device, MatmulType type) {
    const auto narrow = at::TensorOptions().dtype(kBf16).device(device);
    const Tensor x = at::empty({150, 112}, narrow).zero_();
    const Tensor weight = at::empty({96, 112}, narrow).zero_();
    const Tensor y = at::empty({150, 96}, narrow).zero_();
    const std::int64_t before = allocation_count(counted).live;
    reset_allocation_peak(counted);
    const MatmulMode mode(type);
    linear(y, x, weight, {});
    return allocation_count(counted).peak - before;
  };
  const auto grown = [&](CountedDevice counted, at::Device device) {
    return peak(counted, device, MatmulType::kFp8) - peak(counted, device, MatmulType::kFp32);
  };
  const std::int64_t host = grown(CountedDevice::kHost, c10::DeviceType::CPU);
  EXPECT_EQ(host, 2 * (150 + 96) * 112);
  EXPECT_EQ(grown(CountedDevice::kMeta, c10::DeviceType::Meta), host);
}

// Of two chunks of tokens; heads that share keys, so that k and v are narrower than q.
ModelOptions block_options(ModelType type) {
  ModelOptions options{.type = type, .layers = 1, .hidden = 96, .heads = 6, .vocab = 8, .seq = 147};
  if (type == ModelType::kLlama) {
    options.kv_heads = 2;
    options.ffn = 176;
  }
  return make_model_spec(options).options;
}

std::unique_ptr<Unit> block_of(const ModelOptions& options) {
  return std::move(make_model(options).units[1]);
}

TEST(Fp8Linear, ABlockIsNearTheNativeOneAndReplaysItsBits) {
  for (const ModelType type : {ModelType::kGpt2, ModelType::kLlama}) {
    ModelOptions options = block_options(type);
    const BlockData data(options, 3, kBf16, Layout::kFlat);
    const BlockResult native = run_block(*block_of(options), data, BlockMemory::kSaved, 2);
    options.matmul = MatmulType::kFp8;
    const BlockResult ours = run_block(*block_of(options), data, BlockMemory::kSaved, 2);
    for (std::size_t i = 0; i < ours.tensors.size(); ++i) {
      const bool sums = native.tensors[i].dim() == 1;  // of biases and norms: terms cancel
      const double error = relative_error(ours.tensors[i], native.tensors[i]);
      EXPECT_LT(error, sums ? 0.3 : 0.15) << static_cast<int>(type) << " tensor " << i;
      EXPECT_GT(error, sums ? -1 : 1e-3) << static_cast<int>(type) << " tensor " << i;
    }
    expect_same_bits(run_block(*block_of(options), data, BlockMemory::kRecomputed, 2), ours,
                     "recomputed");
    options.recompute_attention = true;
    expect_same_bits(run_block(*block_of(options), data, BlockMemory::kSaved, 2), ours,
                     "selective");
    expect_same_bits(run_block(*block_of(options), data, BlockMemory::kRecomputed, 2), ours,
                     "selective, recomputed");
  }
}

}  // namespace
}  // namespace sluice::testing
