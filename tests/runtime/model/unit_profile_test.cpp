// The meta device's count of a unit against the host allocator's: to the byte in fp32.
#include "runtime/model/unit_profile.hpp"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "parallel/comm/cuda_module.hpp"
#include "runtime/model/counting_allocator.hpp"
#include "runtime/model/gpu_path.hpp"
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
  for (const ParamRef& ref : model.spec.units[1].params) {
    const ParamSpec& param = model.spec.groups[static_cast<std::size_t>(ref.group)]
                                 .params[static_cast<std::size_t>(ref.index)];
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

void expect_profile_equals_run(const ModelOptions& options, DType dtype, const std::string& what) {
  const Model model = make_model(options);
  const Real real = run_block(model, 3, dtype);
  const UnitMemory meta =
      profile_unit(model, 1, {.micro_batch = 3, .seq = options.seq, .dtype = dtype});
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

TEST(UnitProfile, EqualsTheRealRun) {
  install_counting_allocators();
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const double dropout : {0.0, 0.1}) {
      ModelOptions options{.layers = 1, .hidden = 192, .heads = 6, .vocab = 64, .seq = 200};
      options.dropout = dropout;
      options.explicit_units = false;  // explicit_block_test.cpp has the others
      const std::string what = std::string(name_of(dtype)) + " dropout " + std::to_string(dropout);
      expect_profile_equals_run(options, dtype, "gpt2 " + what);
      options.type = ModelType::kQwen2;
      expect_profile_equals_run(options, dtype, "qwen2 " + what);
      options.kv_heads = 2;
      expect_profile_equals_run(options, dtype, "qwen2 of shared heads " + what);
      options.type = ModelType::kMistral;
      options.sliding_window = 70;
      expect_profile_equals_run(options, dtype, "mistral " + what);
    }
  }
}

TEST(UnitProfile, OfTheHeadEqualsTheRealRun) {
  install_counting_allocators();
  for (const ModelType type : {ModelType::kGpt2, ModelType::kLlama}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      ModelOptions options{.layers = 1, .hidden = 96, .heads = 2, .vocab = 331, .seq = 130};
      options.type = type;
      options.tie_embeddings = false;
      options.matmul = MatmulType::kFp32;
      const Model model = make_model(options);
      std::vector<at::Tensor> params;
      for (const ParamSpec& param : model.spec.groups.back().params) {
        params.push_back(at::empty(param.tensor.shape, scalar_type(dtype)).fill_(0.01));
      }
      // Five chunks in fp32. Of as many 16-bit rows the norm's backward is the peak, whose real
      // kernel has scratch of its own.
      const std::int64_t samples = dtype == DType::kFloat32 ? 9 : 3;
      const at::Tensor x = at::empty({samples, 130, 96}, scalar_type(dtype)).fill_(0.5);
      const at::Tensor targets = at::empty({samples, 130}, c10::ScalarType::Long).fill_(7);
      const at::Tensor scratch =
          at::empty({model.head->scratch_bytes(targets.numel(), dtype)}, c10::ScalarType::Byte);
      CollectingSink sink(params);
      const std::int64_t start = host().live;
      reset_allocation_peak(CountedDevice::kHost);
      at::Tensor grad;
      (void)model.head->loss(params, x, targets, 1.0, scratch, &sink, &grad);
      const UnitMemory meta =
          profile_unit(model, 2, {.micro_batch = samples, .seq = 130, .dtype = dtype});
      EXPECT_LE(std::abs(host().peak - start - meta.backward_peak), 64)
          << static_cast<int>(type) << " " << name_of(dtype);
    }
  }
}

// Time that grew with rows would end this test at its limit: there are 4e7 chunks of them.
TEST(UnitProfile, OfManyRowsIsDrawnFromAFewPieces) {
  for (const bool llama : {false, true}) {
    ModelOptions options{.layers = 1, .hidden = 64, .heads = 8, .vocab = 300};
    if (llama) {
      options.type = ModelType::kLlama;
      options.kv_heads = 2;
    }
    options.matmul = MatmulType::kFp32;
    options.seq = 10'000;
    const Model model = make_dry_model(options);
    for (const std::size_t unit : {std::size_t{1}, std::size_t{2}}) {
      const auto of = [&](std::int64_t samples) {
        return profile_unit(
            model, unit, {.micro_batch = samples, .seq = options.seq, .dtype = DType::kBFloat16});
      };
      const UnitMemory one = of(1'000'000);
      const UnitMemory two = of(2'000'000);
      const UnitMemory three = of(3'000'000);
      EXPECT_EQ(three.backward_peak - two.backward_peak, two.backward_peak - one.backward_peak);
      EXPECT_EQ(three.kept, 3 * one.kept);
    }
  }
}

// Its tables of rotary angles would be 2 TiB.
// Ranks may be threads of a process, and make their models while another one profiles.
TEST(UnitProfile, DoesNotCountTensorsOfOtherThreads) {
  install_counting_allocators();
  const ModelOptions options{.layers = 1, .hidden = 192, .heads = 6, .vocab = 64, .seq = 200};
  const Model model = make_model(options);
  const ProfileShape shape{.micro_batch = 2, .seq = options.seq, .dtype = DType::kFloat32};
  const UnitMemory alone = profile_unit(model, 1, shape);
  std::atomic<bool> done{false};
  std::atomic<int> made{0};
  std::thread other([&] {
    std::vector<at::Tensor> kept;
    for (; !done; ++made) {
      kept.push_back(at::empty({1000}, at::TensorOptions().device(c10::DeviceType::Meta)));
      if (kept.size() == 100) kept.clear();
    }
  });
  while (made < 50'000) {
    const UnitMemory beside = profile_unit(model, 1, shape);
    EXPECT_EQ(beside.kept, alone.kept);
    EXPECT_EQ(beside.backward_peak, alone.backward_peak);
  }
  done = true;
  other.join();
}

TEST(UnitProfile, ADryModelHasNoConstants) {
  ModelOptions options{.layers = 1, .hidden = 128, .heads = 1, .vocab = 300};
  options.type = ModelType::kLlama;
  options.seq = 1'000;
  const auto of = [](const Model& model, std::int64_t seq) {
    return profile_unit(model, 1, {.micro_batch = 1, .seq = seq});
  };
  EXPECT_EQ(of(make_dry_model(options), 1'000).backward_peak,
            of(make_model(options), 1'000).backward_peak);
  options.seq = std::int64_t{1} << 32;
  EXPECT_EQ(of(make_dry_model(options), options.seq).output, options.seq * 128 * 4);
}

TEST(GpuBlocks, AreTheCachingAllocators) {
  constexpr std::int64_t kMiB = 1 << 20;
  EXPECT_EQ(cuda_block_bytes(0), 0);
  EXPECT_EQ(cuda_block_bytes(1), 512);
  EXPECT_EQ(cuda_block_bytes(512), 512);
  EXPECT_EQ(cuda_block_bytes(513), 1024);
  // Two of 768 KiB fill a segment of 2 MiB, three of 520 KiB too, and each counts as its share.
  EXPECT_EQ(cuda_block_bytes(768 * 1024), kMiB);
  EXPECT_EQ(cuda_block_bytes(520 * 1024), 2 * kMiB / 3 / 512 * 512);
  EXPECT_EQ(cuda_block_bytes(cuda_block_bytes(520 * 1024)), cuda_block_bytes(520 * 1024));
  EXPECT_EQ(cuda_block_bytes(kMiB), kMiB);
  EXPECT_EQ(cuda_block_bytes(kMiB + 1), kMiB + 512);
  EXPECT_EQ(cuda_block_bytes(10 * kMiB - 1), 10 * kMiB);
  EXPECT_EQ(cuda_block_bytes(10 * kMiB), 10 * kMiB);
  EXPECT_EQ(cuda_block_bytes(10 * kMiB + 1), 12 * kMiB);
  EXPECT_EQ(cuda_block_bytes(25 * kMiB), 26 * kMiB);
}

ModelOptions gpu_model(ModelType type) {
  ModelOptions options{.type = type, .layers = 2, .hidden = 1024, .heads = 16, .vocab = 9216};
  options.kv_heads = type == ModelType::kGpt2 ? 16 : 4;
  options.tie_embeddings = type == ModelType::kGpt2;
  options.on_gpu = true;
  return options;
}

// Of a unit with 4 samples of 1024 tokens: a hidden-sized tensor of 16 bits is 8 MiB.
UnitMemory profile_of(const ModelOptions& options, std::size_t unit, DType dtype) {
  return profile_unit(make_model(options), unit, {.micro_batch = 4, .seq = 1024, .dtype = dtype});
}

// A GPU keeps the host's tensors and the log-sum-exp of attention, from which its backward starts.
TEST(GpuProfile, ExplicitBlocksKeepTheHostsTensors) {
  constexpr std::int64_t kLogSumExp = 4LL * 16 * 1024 * 4;
  for (const ModelType type : {ModelType::kGpt2, ModelType::kLlama}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const ModelOptions options = gpu_model(type);
      EXPECT_TRUE(make_model(options).units[1]->saved_moves());
      ModelOptions host = options, autograd = options;
      host.on_gpu = false;
      autograd.explicit_units = false;
      const UnitMemory block = profile_of(options, 1, dtype);
      const UnitMemory twin = profile_of(autograd, 1, dtype);
      // Each of the four tensors counts as the allocator's block, a multiple of 2 MiB.
      const std::int64_t kept = profile_of(host, 1, dtype).kept + kLogSumExp;
      EXPECT_GE(block.kept, kept) << name_of(dtype);
      EXPECT_LT(block.kept, kept + 4 * (2 << 20)) << name_of(dtype);
      EXPECT_LT(5 * block.kept / 4, twin.kept) << name_of(dtype);
      EXPECT_LT(block.kept + block.backward_peak, twin.kept + twin.backward_peak);
    }
  }
}

// Selective recomputation also drops attention's result, and a split backward holds more operands.
TEST(GpuProfile, ExplicitBlocksDropAndDefer) {
  ModelOptions options = gpu_model(ModelType::kGpt2);
  const UnitMemory whole = profile_of(options, 1, DType::kBFloat16);
  const UnitMemory split = profile_unit(
      make_model(options), 1,
      {.micro_batch = 4, .seq = 1024, .dtype = DType::kBFloat16, .split_backward = true});
  EXPECT_GT(split.deferred, whole.kept);
  options.recompute_attention = true;
  const UnitMemory selective = profile_of(options, 1, DType::kBFloat16);
  EXPECT_EQ(selective.kept, whole.kept - 4LL * 1024 * 1024 * 2 - 4LL * 16 * 1024 * 4);
}

// The deterministic form of flash attention's backward has copies of dq where heads are few.
TEST(GpuProfile, DeterministicAttentionTakesMoreForFewHeads) {
  ModelOptions options = gpu_model(ModelType::kGpt2);
  const UnitMemory usual = profile_of(options, 1, DType::kBFloat16);
  options.deterministic = true;
  EXPECT_GT(profile_of(options, 1, DType::kBFloat16).backward_peak, usual.backward_peak);
  EXPECT_EQ(profile_of(options, 1, DType::kFloat32).kept,
            profile_of(gpu_model(ModelType::kGpt2), 1, DType::kFloat32).kept);
}

// The log-sum-exp of attention; with more heads it is no small block.
TEST(GpuProfile, SmallBlocksAreThoseOfRows) {
  ModelOptions options = gpu_model(ModelType::kGpt2);
  EXPECT_EQ(profile_of(options, 1, DType::kBFloat16).kept_small, 16 * 4LL * 1024 * 4);
  options.heads = options.kv_heads = 128;
  EXPECT_EQ(profile_of(options, 1, DType::kBFloat16).kept_small, 0);
}

// cuDNN keeps what flash attention keeps. Where query heads share key heads, its backward has no dk
// and dv of each query head.
TEST(GpuProfile, CudnnKeepsTheSameTensors) {
  for (const ModelType type : {ModelType::kGpt2, ModelType::kLlama}) {
    ModelOptions options = gpu_model(type);
    options.ffn = 64;  // so that attention is a block's peak
    const UnitMemory flash = profile_of(options, 1, DType::kBFloat16);
    options.attention = AttentionBackend::kCudnn;
    const UnitMemory cudnn = profile_of(options, 1, DType::kBFloat16);
    EXPECT_EQ(cudnn.kept, flash.kept);
    const std::int64_t each = type == ModelType::kLlama ? 4LL * 1024 * 1024 * 2 : 0;
    EXPECT_NEAR(cudnn.backward_peak, flash.backward_peak - 2 * each, 2 << 20);
  }
}

// Attention by products keeps the host's tensors alone, and its scratch is bounded: scores of all
// pairs of 8192 tokens would take 4 GiB.
TEST(GpuProfile, AttentionByProductsKeepsTheHostsTensors) {
  ModelOptions dropping = gpu_model(ModelType::kGpt2);
  dropping.dropout = 0.1;
  ModelOptions odd = gpu_model(ModelType::kLlama);
  odd.head_dim = 68;
  for (ModelOptions options : {dropping, odd}) {
    EXPECT_TRUE(make_model(options).units[1]->saved_moves());
    ModelOptions host = options;
    host.on_gpu = false;
    const UnitMemory block = profile_of(options, 1, DType::kBFloat16);
    const std::int64_t kept = profile_of(host, 1, DType::kBFloat16).kept;
    EXPECT_GE(block.kept, kept);
    EXPECT_LT(block.kept, kept + 4 * (2 << 20));
    options.seq = 8192;
    const UnitMemory of_long = profile_unit(
        make_model(options), 1, {.micro_batch = 1, .seq = 8192, .dtype = DType::kBFloat16});
    EXPECT_LT(of_long.backward_peak, 512 << 20);
    EXPECT_GT(of_long.backward_peak, 128 << 20);
  }
}

TEST(GpuProfile, CountsWhatGpuPathsTake) {
  const ModelOptions options = gpu_model(ModelType::kGpt2);
  constexpr std::int64_t kTable = 9216LL * 1024;  // elements
  // The order of the tokens; nothing of the rows' size or of the table's.
  EXPECT_EQ(profile_of(options, 0, DType::kBFloat16).backward_peak, 4096 * 4);
  // A chunk of logits, which its gradient replaces, lies in scratch. The classifier's gradient has
  // no 16-bit temporary.
  const UnitMemory head = profile_of(options, 3, DType::kBFloat16);
  EXPECT_EQ(head.scratch, 2048LL * 9216 * 4);
  EXPECT_EQ(profile_of(options, 3, DType::kFloat32).scratch, 2048LL * 9216 * 4);
  EXPECT_LT(head.backward_peak, kTable * 2);
  // Rows begin on multiples of 128 elements, and logits stay below 1 GiB.
  ModelOptions wide = options;
  wide.vocab = 200'001;
  EXPECT_EQ(profile_of(wide, 3, DType::kBFloat16).scratch, 1280LL * 200'064 * 4);
  ModelOptions host = options;
  host.on_gpu = false;
  EXPECT_LT(profile_of(host, 0, DType::kBFloat16).backward_peak, kTable);
  EXPECT_LT(profile_of(host, 3, DType::kBFloat16).forward_only_peak, 384LL * 9216 * 4);
}

// A GPU's tensor-parallel units send what a host's do. Of the loss head a row's numbers are floats,
// not doubles, and take one exchange, because a GPU's chunks are large.
TEST(GpuProfile, SendsWhatAHostSends) {
  const ProfileShape shape{.micro_batch = 2, .seq = 1024};
  const ModelOptions gpu = gpu_model(ModelType::kGpt2);
  ModelOptions on_host = gpu;
  on_host.on_gpu = false;
  for (const bool sequence : {false, true}) {
    const ModelPart part{.tensor = 2, .sequence = sequence};
    const Model host = make_dry_model(on_host, part), device = make_dry_model(gpu, part);
    for (const std::size_t unit : {0U, 1U}) {
      EXPECT_EQ(unit_exchanges(device, unit, shape), unit_exchanges(host, unit, shape));
    }
    const UnitExchanges of_host = unit_exchanges(host, 3, shape);
    const UnitExchanges of_gpu = unit_exchanges(device, 3, shape);
    EXPECT_EQ(of_gpu.backward, of_host.backward);
    EXPECT_EQ(sent_bytes(of_host.forward) - sent_bytes(of_gpu.forward), 2048 * 3 * 4);
    EXPECT_EQ(of_gpu.forward.back(),
              (Exchange{.kind = ExchangeKind::kAllGather, .bytes = 2048 * 3 * 4}));
  }
}

// libtorch's autograd looks for CUDA at its first backward, and never again.
TEST(GpuModule, IsRefusedAfterABackwardOfAutograd) {
  ModelOptions options = gpu_model(ModelType::kGpt2);
  options.explicit_units = false;
  (void)profile_of(options, 1, DType::kFloat32);
  EXPECT_NE(late_load_fault().find("call use_gpu()"), std::string::npos);
}

TEST(UnitProfile, NeedsNoMemoryForAModelThatFitsNowhere) {
  const ModelOptions options{
      .layers = 2, .hidden = 16384, .heads = 128, .vocab = 200'000, .seq = 8192};
  const Model model = make_model(options);
  const UnitMemory block = profile_unit(model, 1, {.micro_batch = 4, .seq = 8192});
  // 9 hidden-sized elements a token are kept, and one goes on: of 4 bytes each.
  const std::int64_t hidden_sized = 4LL * 8192 * 16384 * 4;
  EXPECT_EQ(block.kept + block.output, 10 * hidden_sized);
}

}  // namespace
}  // namespace sluice::testing
