// The memory model against the allocator: the same program added up and executed.
#include <gtest/gtest.h>

#include <cstdio>

#include "runtime/model/counting_allocator.hpp"
#include "runtime/run/planned_engine.hpp"
#include "tests/runtime/engine/world.hpp"

namespace sluice::testing {
namespace {

struct Case {
  const char* name;
  ModelOptions model;
  std::int64_t micro_batch;
  int accumulation;
  DType dtype;
  RecomputeMode recompute;
  AccumulationOrder order = AccumulationOrder::kMicro;
  OptimizerType optimizer = OptimizerType::kAdamW;
};

double relative_error(const Case& c, int stage, const RowSource& rows = {},
                      bool rounds_master = false) {
  install_counting_allocators();
  EngineOptions options = tiny_options();
  options.model = c.model;
  options.train.micro_batch = c.micro_batch;
  options.train.global_batch = c.micro_batch * c.accumulation;
  options.train.dtype = c.dtype;
  options.recompute.mode = c.recompute;
  options.train.accumulation_order = c.order;
  options.optimizer.type = c.optimizer;
  options.zero.stage = stage;
  if (rounds_master) options.zero.rounds_from = 1;
  const std::int64_t before = allocation_count(CountedDevice::kHost).live;
  double error = 0;
  const auto measure = [&](int, Engine& engine) {
    (void)engine.train_step({.step = 1, .lr = 1e-3});
    reset_allocation_peak(CountedDevice::kHost);
    (void)engine.train_step({.step = 2, .lr = 1e-3});
    const auto measured = static_cast<double>(allocation_count(CountedDevice::kHost).peak - before);
    const auto planned = static_cast<double>(add_up(engine.train_program()).peak());
    error = measured / planned - 1.0;
    std::printf("%-28s stage %d: planned %12.0f measured %12.0f  %+.3f %%\n", c.name, stage,
                planned, measured, 100 * error);
  };
  run_world(options, Wire::kLocal, measure, rows);
  return error;
}

// formula_rows, whose row r has documents of 1, 2, ... r % 3 tokens and of the rest.
RowSource with_documents(const ModelOptions& model, bool whole) {
  return [=, plain = formula_rows(model.seq, model.vocab)](std::int64_t index, std::int64_t first,
                                                           std::int64_t rows, SampleRows& out) {
    plain(index, first, rows, out);
    out.cu_seqlens.clear();
    for (std::int64_t r = first; r < first + rows; ++r) {
      std::vector<std::int32_t> ends{0};
      for (std::int32_t i = 1; !whole && i <= r % 3; ++i) ends.push_back(ends.back() + i);
      ends.push_back(static_cast<std::int32_t>(model.seq));
      out.cu_seqlens.push_back(ends);
    }
    out.learned_targets = 7;
  };
}

TEST(MemoryModel, EqualsTheAllocator) {
  const ModelOptions plain{.layers = 3, .hidden = 128, .heads = 4, .vocab = 503, .seq = 128};
  ModelOptions odd{.layers = 2, .hidden = 96, .heads = 3, .vocab = 1031, .seq = 250};
  ModelOptions dropping = plain;
  dropping.dropout = 0.1;
  ModelOptions converting = plain;
  converting.matmul = MatmulType::kFp32;
  ModelOptions converting_odd = odd;
  converting_odd.matmul = MatmulType::kFp32;
  ModelOptions in_8_bits = plain;
  in_8_bits.matmul = MatmulType::kFp8;
  ModelOptions in_8_bits_odd{.layers = 7, .hidden = 96, .heads = 3, .vocab = 1031, .seq = 250};
  in_8_bits_odd.matmul = MatmulType::kFp8;
  const Case cases[] = {
      {"fp32", plain, 2, 1, DType::kFloat32, RecomputeMode::kNone},
      {"fp32 recompute", plain, 2, 1, DType::kFloat32, RecomputeMode::kFull},
      {"fp32 accumulation 3", plain, 1, 3, DType::kFloat32, RecomputeMode::kNone},
      {"bf16", plain, 2, 1, DType::kBFloat16, RecomputeMode::kNone},
      {"bf16 recompute", plain, 4, 2, DType::kBFloat16, RecomputeMode::kFull},
      {"bf16 in fp32", converting, 2, 1, DType::kBFloat16, RecomputeMode::kNone},
      {"bf16 in fp32 recompute", converting, 4, 2, DType::kBFloat16, RecomputeMode::kFull},
      {"bf16 in fp32 odd sizes", converting_odd, 3, 2, DType::kBFloat16, RecomputeMode::kNone},
      {"fp8", in_8_bits, 2, 1, DType::kBFloat16, RecomputeMode::kNone},
      {"fp8 recompute", in_8_bits, 4, 2, DType::kBFloat16, RecomputeMode::kFull},
      {"fp8 odd sizes", in_8_bits_odd, 3, 2, DType::kBFloat16, RecomputeMode::kNone},
      {"fp32 odd sizes", odd, 3, 1, DType::kFloat32, RecomputeMode::kNone},
      {"fp32 odd sizes recompute", odd, 3, 2, DType::kFloat32, RecomputeMode::kFull},
      {"fp32 layer-major", plain, 1, 3, DType::kFloat32, RecomputeMode::kNone,
       AccumulationOrder::kLayer},
      {"bf16 layer-major recompute", plain, 2, 3, DType::kBFloat16, RecomputeMode::kFull,
       AccumulationOrder::kLayer},
      {"fp32 lion", plain, 2, 1, DType::kFloat32, RecomputeMode::kNone, AccumulationOrder::kMicro,
       OptimizerType::kLion},
      {"bf16 sgd", plain, 2, 1, DType::kBFloat16, RecomputeMode::kNone, AccumulationOrder::kMicro,
       OptimizerType::kSgd},
      {"fp32 dropout", dropping, 2, 1, DType::kFloat32, RecomputeMode::kNone},
  };
  for (const Case& c : cases) {
    for (const int stage : {0, 1, 2, 3}) {
      EXPECT_LE(std::abs(relative_error(c, stage)), 1e-5) << c.name << " stage " << stage;
    }
  }
}

// Gathered groups of a rank alone have slots in place of shards. Products are in fp32: oneDNN's
// fp16 products of odd sizes take scratch memory on CPUs with AVX512-FP16.
TEST(MemoryModel, EqualsTheAllocatorWhereGathersRoundMasterWeights) {
  const ModelOptions odd{.layers = 7,
                         .hidden = 96,
                         .heads = 3,
                         .vocab = 1031,
                         .seq = 250,
                         .matmul = MatmulType::kFp32};
  for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kFull}) {
    const Case c{"fp16 rounds", odd, 1, 2, DType::kFloat16, mode};
    EXPECT_LE(std::abs(relative_error(c, 3, {}, true)), 1e-5);
  }
}

// Explicit units: whatever the documents. Units of libtorch's autograd: rows of one document need
// the most, which the plan has.
TEST(MemoryModel, EqualsTheAllocatorOnPackedRows) {
  ModelOptions gpt2{.layers = 2, .hidden = 96, .heads = 3, .vocab = 503, .seq = 130};
  gpt2.packed_rows = true;
  ModelOptions mistral = gpt2;
  mistral.type = ModelType::kMistral;
  mistral.sliding_window = 50;
  mistral.kv_heads = 1;
  mistral.ffn = 200;
  for (ModelOptions model : {gpt2, mistral}) {
    for (const bool explicit_units : {true, false}) {
      model.explicit_units = explicit_units;
      for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kFull}) {
        const Case c{
            explicit_units ? "packed" : "packed autograd", model, 3, 2, DType::kFloat32, mode};
        const double several = relative_error(c, 3, with_documents(model, false));
        const double whole = relative_error(c, 3, with_documents(model, true));
        EXPECT_LE(std::abs(whole), 1e-5);
        EXPECT_LE(explicit_units ? std::abs(several) : several, 1e-5);
      }
    }
  }
}

// Plans as `inner` and fails as a GPU's allocator does where it runs, or as a library does.
class RunsOut final : public Unit {
 public:
  RunsOut(std::unique_ptr<Unit> inner, bool library)
      : inner_(std::move(inner)), library_(library) {}
  at::Tensor forward(const UnitCall& call, std::span<const at::Tensor> params,
                     const at::Tensor& input, std::unique_ptr<Saved>* saved) override {
    TORCH_CHECK(input.is_meta() || !library_,
                "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling "
                "`cublasCreate(handle)`");
    TORCH_CHECK_WITH(OutOfMemoryError, input.is_meta(),
                     "CUDA out of memory. Tried to allocate 20.00 MiB");
    return inner_->forward(call, params, input, saved);
  }
  at::Tensor backward(const UnitCall& call, std::span<const at::Tensor> params,
                      const at::Tensor& input, std::unique_ptr<Saved> saved,
                      const at::Tensor& grad_output, GradSink& sink) override {
    return inner_->backward(call, params, input, std::move(saved), grad_output, sink);
  }

 private:
  const std::unique_ptr<Unit> inner_;
  const bool library_;
};

// Exit code 3, with what is large and what to change, without libtorch's stack.
void expect_advice(bool library, const std::string& reason) {
  const EngineOptions options = tiny_options();
  const auto comm = make_local_communicators(1);
  const RowSource rows = formula_rows(options.model.seq, options.model.vocab);
  Model model = make_model(options.model);
  model.units[1] = std::make_unique<RunsOut>(std::move(model.units[1]), library);
  Engine engine = planned_engine(options, std::move(model), *comm.front(),
                                 at::Device(c10::DeviceType::CPU), rows, rows);
  try {
    (void)engine.train_step({.step = 1, .lr = 1e-3});
    FAIL() << "a unit ran out of memory";
  } catch (const BudgetError& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.exit_code(), 3);
    for (const std::string& part : {reason, std::string("largest: "),
                                    std::string("to need less: --set recompute.mode=full")}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
    EXPECT_EQ(text.find("frame #"), std::string::npos) << text;
  }
}

TEST(MemoryModel, ADeviceThatRunsOutSaysWhatToChange) {
  expect_advice(false, "Tried to allocate 20.00 MiB");
  expect_advice(true, "CUBLAS_STATUS_ALLOC_FAILED");
}

// Nothing is allocated step by step that is not freed again.
TEST(MemoryModel, StepsLeaveNothingBehind) {
  install_counting_allocators();
  EngineOptions options = tiny_options();
  options.zero.stage = 3;
  run_world(options, Wire::kLocal, [&](int, Engine& engine) {
    (void)engine.train_step({.step = 1, .lr = 1e-3});
    (void)engine.evaluate(1);
    const std::int64_t live = allocation_count(CountedDevice::kHost).live;
    for (int step = 2; step < 30; ++step) {
      (void)engine.train_step({.step = step, .lr = 1e-3});
      EXPECT_EQ(allocation_count(CountedDevice::kHost).live, live);
    }
    (void)engine.evaluate(2);
    EXPECT_EQ(allocation_count(CountedDevice::kHost).live, live);
  });
}

}  // namespace
}  // namespace sluice::testing
