// Any one buffer of a kernel may begin 8 bytes behind a multiple of 16: the results are those of
// buffers on multiples of 16 bytes. Of the kernels only, since a launcher decides how they read.
#include <deque>

#include "tests/kernels/cuda_bodies.hpp"

namespace sluice::testing {
namespace {

constexpr std::int64_t kLines = 5, kWidth = 64;

// The buffers of a kernel's arguments. Number `off` begins 8 bytes late.
class Places {
 public:
  explicit Places(int off) : off_(off) {}

  void* of(const Bytes& content) {
    constexpr std::size_t kLate = 8;
    const std::size_t late = count() == off_ ? kLate : 0;
    const Buffer& memory = memory_.emplace_back(content.size() + late);
    void* const begin = data_of<std::byte>(memory) + late;
    std::memcpy(begin, content.data(), content.size());
    return begin;
  }
  void* random(DType dtype, std::int64_t n) {
    return of(as_bytes(normal_values(n, static_cast<unsigned>(count())), dtype));
  }
  float* floats(std::int64_t n) { return static_cast<float*>(random(DType::kFloat32, n)); }
  template <class T>
  T* values(const std::vector<T>& all) {
    return static_cast<T*>(of(copy_of(all).content()));
  }

  [[nodiscard]] int count() const { return static_cast<int>(memory_.size()); }
  [[nodiscard]] std::vector<Bytes> contents() const {
    std::vector<Bytes> all;
    for (const Buffer& each : memory_) {
      all.push_back(each.content());
      if (static_cast<int>(all.size()) == off_ + 1)
        all.back().erase(all.back().begin(), all.back().begin() + 8);
    }
    return all;
  }

 private:
  const int off_;
  std::deque<Buffer> memory_;
};

// run(places, dtype) takes buffers and runs a kernel with them.
template <class Run>
void expect_same_at_any_place(Run run) {
  for (const DType dtype : kDTypes) {
    Places aligned(-1);
    run(aligned, dtype);
    for (int off = 0; off < aligned.count(); ++off) {
      Places places(off);
      run(places, dtype);
      EXPECT_EQ(places.contents(), aligned.contents()) << name_of(dtype) << ", buffer " << off;
    }
  }
}

TEST(CudaAlignment, Gelu) {
  expect_same_at_any_place([](Places& at, DType dtype) {
    constexpr std::int64_t kElems = kLines * kWidth;
    run_gelu({at.random(dtype, kElems), at.random(dtype, kElems), dtype, kElems});
    cuda::GeluGradient args{.dx = at.random(dtype, kElems),
                            .y = at.random(dtype, kElems),
                            .x = at.random(dtype, kElems),
                            .dy = at.random(dtype, kElems),
                            .dtype = dtype,
                            .width = kWidth,
                            .rows = kLines};
    run_gelu_gradient(args);
    args.dx = at.random(dtype, kElems);
    args.parts = at.floats(kWidth);
    run_gelu_gradient(args);
  });
}

TEST(CudaAlignment, Swiglu) {
  expect_same_at_any_place([](Places& at, DType dtype) {
    constexpr std::int64_t kElems = kLines * kWidth;
    run_swiglu({at.random(dtype, kElems), at.random(dtype, 2 * kElems), dtype, kLines, kWidth});
    run_swiglu_gradient({.d_gate_up = at.random(dtype, 2 * kElems),
                         .y = at.random(dtype, kElems),
                         .gate_up = at.random(dtype, 2 * kElems),
                         .dy = at.random(dtype, kElems),
                         .dtype = dtype,
                         .rows = kLines,
                         .width = kWidth});
  });
}

TEST(CudaAlignment, Rope) {
  expect_same_at_any_place([](Places& at, DType dtype) {
    const RopeArgs args{.x = at.random(dtype, kLines * 2 * kWidth),
                        .cos = at.floats(kLines * kWidth / 2),
                        .sin = at.floats(kLines * kWidth / 2),
                        .dtype = dtype,
                        .rows = kLines,
                        .seq = kLines,
                        .heads = 2,
                        .head_dim = kWidth,
                        .stride = 2 * kWidth};
    run_rope({args, at.values<std::int64_t>({4, 0, 3, 1, 2})});
  });
}

cuda::BranchArgs branch_at(Places& at, const Shape& shape) {
  const auto [dtype, width] = shape;
  const std::int64_t elems = kLines * width;
  return {.out = at.random(dtype, elems),
          .x = at.random(dtype, elems),
          .bias = at.random(dtype, width),
          .residual = at.random(dtype, elems),
          .dtype = dtype,
          .rows = kLines,
          .columns = width,
          .mask = {.threshold = 1ULL << 30, .keep = 4.0F / 3, .seed = 3, .per_sample = width}};
}

LayerNormArgs norm_at(Places& at, const Shape& shape, const void* x) {
  const auto [dtype, width] = shape;
  return {x,
          at.random(dtype, width),
          at.random(dtype, width),
          at.floats(kLines),
          at.floats(kLines),
          dtype,
          kLines,
          width,
          1e-5};
}

// Rows on multiples of 16 bytes are held in registers: all of these, or, of 3080 columns, those of
// 16 bits where a kernel reads one row.
TEST(CudaAlignment, BranchesAndNorms) {
  for (const std::int64_t width : {64, 1600, 3080}) {
    SCOPED_TRACE(std::to_string(width) + " columns");
    expect_same_at_any_place([width](Places& at, DType dtype) {
      const Shape shape{dtype, width};
      const std::int64_t elems = kLines * width;
      run_branch(branch_at(at, shape));
      for (const bool centered : {true, false}) {
        const LayerNormArgs alone = norm_at(at, shape, at.random(dtype, elems));
        run_norm_forward({alone, centered}, at.random(dtype, elems));
        run_norm_input_gradient(
            {alone, centered},
            {at.random(dtype, elems), at.random(dtype, elems), at.random(dtype, elems)});
        run_norm_parts({alone, centered}, {at.random(dtype, elems), at.floats(2 * width)});
        const cuda::BranchArgs branch = branch_at(at, shape);
        run_branch_norm(branch, {norm_at(at, shape, branch.out), centered},
                        at.random(dtype, elems));
      }
    });
  }
}

TEST(CudaAlignment, ColumnSums) {
  expect_same_at_any_place([](Places& at, DType dtype) {
    float* const parts = at.floats(kWidth);
    run_column_parts({at.random(dtype, kLines * kWidth), dtype, kLines, kWidth, parts});
    run_join_rows({.to = at.random(dtype, 4 * kLines * kWidth),
                   .from = {at.random(dtype, 2 * kLines * kWidth),
                            at.random(dtype, kLines * kWidth), at.random(dtype, kLines * kWidth)},
                   .columns = {2 * kWidth, kWidth, kWidth},
                   .dtype = dtype,
                   .rows = kLines,
                   .parts = at.floats(4 * kWidth)});
    const cuda::ColumnTotal total{at.floats(kWidth), parts, 1, kWidth, true};
    run_column_totals(&total, 1);
  });
}

TEST(CudaAlignment, Embeddings) {
  expect_same_at_any_place([](Places& at, DType dtype) {
    const auto* tokens = at.values<std::int64_t>({4, 0, 4, 1, 4});
    run_token_lookup({at.random(dtype, kLines * kWidth), at.random(dtype, kLines * kWidth), tokens,
                      dtype, kLines, 0, kLines, kLines, kWidth});
    run_embedding_gradient({at.floats(kLines * kWidth),
                            at.random(dtype, kLines * kWidth),
                            at.values(std::vector<std::int32_t>(kLines)),
                            dtype,
                            {tokens, kLines, 1},
                            0,
                            kLines,
                            kWidth});
  });
}

TEST(CudaAlignment, CopiesOfHeads) {
  for (const bool back : {false, true}) {
    expect_same_at_any_place([&](Places& at, DType dtype) {
      cuda::HeadCopy copy;
      const Buffer packed = random(DType::kFloat32, kLines * 2 * kWidth, 7);
      copy.of[0] = {.tokens = at.random(dtype, kLines * 2 * kWidth),
                    .sample_stride = kLines * 2 * kWidth,
                    .token_stride = 2 * kWidth,
                    .packed = packed.data(),  // the launcher refuses others
                    .rows = kLines};
      copy.count = 1;
      copy.dtype = dtype;
      copy.chunk = {.heads = 2, .kv_heads = 2, .seq = kLines};
      copy.head_dim = copy.width = kWidth;
      run_copy_heads(copy, back);
      (void)at.of(packed.content());
    });
  }
}

}  // namespace
}  // namespace sluice::testing
