// The CUDA kernels of an embedding (cuda_runs.hpp), bit for bit against the CPU's kernels: of a
// whole table, and of a rank's slice.
#include <algorithm>
#include <numeric>

#include "kernels/cpu/embedding/embedding.hpp"
#include "kernels/cpu/embedding/embedding_slice.hpp"
#include "tests/kernels/cuda_bodies.hpp"

namespace sluice::testing {
namespace {

constexpr std::int64_t kTableRows = 11;
constexpr std::int64_t kWords = 40, kFirst = 8, kOwn = 24, kTokens = 61;  // of a slice

// Many tokens of few rows; one row; each token a row of its own; rows whose tokens end before, at
// and behind those that a warp looks up together.
std::vector<std::vector<std::int64_t>> token_lists() {
  std::vector<std::int64_t> many, one(9, 4), own;
  for (std::int64_t t = 0; t < 101; ++t) many.push_back(t * t % kTableRows);
  for (std::int64_t t = kTableRows; t-- > 0;) own.push_back(t);
  std::vector<std::int64_t> batches;
  for (std::int64_t t = 0; t < 100; ++t) {
    batches.push_back(7);
    if (t < 64) batches.push_back(3);
    if (t < 33) batches.push_back(8);
    if (t < 31) batches.push_back(2);
  }
  return {many, one, own, batches};
}

Buffer order_for(std::int64_t tokens) {
  return Buffer(static_cast<std::size_t>(tokens) * sizeof(std::int32_t));
}

// `rows`: the kernel is given the tokens' rows, or finds them by the period.
void expect_bits_of_the_cpu(const Shape& shape, const std::vector<std::int64_t>& tokens,
                            std::int64_t period) {
  const Buffer rows = copy_of(tokens);
  const cuda::TokenRows at{period == 0 ? data_of<std::int64_t>(rows) : nullptr, std::ssize(tokens),
                           period};
  const Buffer dy = random(shape.dtype, at.tokens * shape.width, 21);
  const auto begun = [&] { return random(DType::kFloat32, kTableRows * shape.width, 22); };
  const Buffer want = begun(), got = begun(), order = order_for(at.tokens);
  embedding_backward(numbers(want), tokens, dy.data(), shape.dtype, kTableRows, shape.width);
  run_embedding_gradient({numbers(got), dy.data(), data_of<std::int32_t>(order), shape.dtype, at, 0,
                          kTableRows, shape.width});
  EXPECT_EQ(got.content(), want.content());
}

TEST(CudaEmbeddingBody, AddsTheTokensOfARowInTheOrderOfTheCpu) {
  for_shapes([](const Shape& shape) {
    for (const std::vector<std::int64_t>& tokens : token_lists()) {
      expect_bits_of_the_cpu(shape, tokens, 0);
    }
  });
}

TEST(CudaEmbeddingBody, WithoutRowsATokenHasItsPlaceInThePeriod) {
  for_shapes([](const Shape& shape) {
    for (const std::int64_t count : {std::int64_t{21}, std::int64_t{24}, std::int64_t{3}}) {
      std::vector<std::int64_t> positions;
      for (std::int64_t t = 0; t < count; ++t) positions.push_back(t % 7);
      expect_bits_of_the_cpu(shape, positions, 7);
    }
  });
}

// The order that the gradient's first kernel finds.
std::vector<std::int32_t> order_of(const std::vector<std::int64_t>& tokens, std::int64_t period) {
  const Buffer rows = copy_of(tokens), order = order_for(std::ssize(tokens));
  const Buffer grad(as_bytes(std::vector<float>(kTableRows), DType::kFloat32));
  const Buffer dy = random(DType::kFloat32, std::ssize(tokens), 20);
  run_embedding_gradient(
      {numbers(grad),
       dy.data(),
       data_of<std::int32_t>(order),
       DType::kFloat32,
       {period == 0 ? data_of<std::int64_t>(rows) : nullptr, std::ssize(tokens), period},
       0,
       kTableRows,
       1});
  const auto* begin = data_of<std::int32_t>(order);
  return {begin, begin + tokens.size()};
}

// More tokens than a warp compares with at a time, and numbers that no table has as a row.
TEST(CudaEmbeddingBody, OrdersManyTokens) {
  std::vector<std::int64_t> tokens;
  for (std::int64_t t = 0; t < 1003; ++t) tokens.push_back(t * t * t % 97);
  std::vector<std::int32_t> want(tokens.size());
  std::iota(want.begin(), want.end(), 0);
  const auto row = [&](std::int32_t t) { return tokens[static_cast<std::size_t>(t)]; };
  std::stable_sort(want.begin(), want.end(), [&](auto a, auto b) { return row(a) < row(b); });
  EXPECT_EQ(order_of(tokens, 0), want);
  EXPECT_EQ(order_of({-1, 4, std::int64_t{1} << 40, 0, -100}, 0),
            (std::vector<std::int32_t>{3, 1, 0, 2, 4}));
}

TEST(CudaEmbeddingBody, OrdersTokensByRowThenByTheirOrder) {
  EXPECT_EQ(order_of({5, 2, 5, 0, 2, 5}, 0), (std::vector<std::int32_t>{3, 1, 4, 0, 2, 5}));
  EXPECT_EQ(order_of({0, 1, 0, 1, 0}, 2), (std::vector<std::int32_t>{0, 2, 4, 1, 3}));
}

TEST(CudaEmbeddingBody, ATokenOutsideTheTableAddsNothing) {
  const std::vector<std::int64_t> tokens{-1, kTableRows, 3};
  const Shape shape{DType::kFloat32, 5};
  const Buffer rows = copy_of(tokens), order = order_for(3);
  const Buffer dy = random(shape.dtype, 3 * shape.width, 23);
  const std::vector<std::byte> zeros =
      as_bytes(std::vector<float>(kTableRows * 5), DType::kFloat32);
  const Buffer grad(zeros), want(zeros);
  embedding_backward(numbers(want), {tokens.data() + 2, 1}, numbers(dy) + 2 * shape.width,
                     shape.dtype, kTableRows, shape.width);
  run_embedding_gradient({numbers(grad),
                          dy.data(),
                          data_of<std::int32_t>(order),
                          shape.dtype,
                          {data_of<std::int64_t>(rows), 3, 1},
                          0,
                          kTableRows,
                          shape.width});
  EXPECT_EQ(grad.content(), want.content());
}

// Some words often, some never, some of other slices.
std::vector<std::int64_t> some_tokens() {
  std::vector<std::int64_t> tokens;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    tokens.push_back(t % 3 == 0 ? kFirst + 5 : t * t % kWords);
  }
  return tokens;
}

void look_up(const Shape& shape, const std::vector<std::int64_t>& tokens, const Buffer& out,
             const Buffer& table) {
  const Buffer words = copy_of(tokens);
  run_token_lookup({out.data(), table.data(), data_of<std::int64_t>(words), shape.dtype,
                    std::ssize(tokens), kFirst, kOwn, kWords, shape.width});
}

EmbeddingSlice cpu_slice(const Shape& shape, const std::vector<std::int64_t>& tokens) {
  return {tokens, kFirst, kOwn, kWords, shape.width};
}

TEST(CudaEmbeddingBody, LookupHasTheBitsOfTheCpu) {
  for_shapes([&](const Shape& shape) {
    const std::vector<std::int64_t> tokens = some_tokens();
    const Buffer table = random(shape.dtype, kOwn * shape.width, 3);
    const auto bytes = static_cast<std::size_t>(kTokens * shape.width * size_of(shape.dtype));
    const Buffer want(bytes), got(bytes);
    embedding_slice_forward(want.data(), table.data(), shape.dtype, cpu_slice(shape, tokens));
    look_up(shape, tokens, got, table);
    EXPECT_EQ(got.content(), want.content());
  });
}

TEST(CudaEmbeddingBody, AWordOutsideTheTableIsSeen) {
  const Shape shape{DType::kFloat32, 5};
  const std::vector<std::int64_t> tokens{kFirst, -1, kWords};
  const Buffer table = random(shape.dtype, kOwn * shape.width, 3), got(floats(3 * shape.width));
  look_up(shape, tokens, got, table);
  EXPECT_EQ(numbers(got)[0], numbers(table)[0]);
  for (const int t : {1, 2}) EXPECT_TRUE(std::isnan(numbers(got)[t * shape.width])) << t;
}

TEST(CudaEmbeddingBody, ASliceAddsItsTokensWithTheBitsOfTheCpu) {
  for_shapes([&](const Shape& shape) {
    const std::vector<std::int64_t> tokens = some_tokens();
    const Buffer rows = copy_of(tokens), order = order_for(kTokens);
    const Buffer dy = random(shape.dtype, kTokens * shape.width, 4);
    const auto begun = [&] { return random(DType::kFloat32, kOwn * shape.width, 5); };
    const Buffer want = begun(), got = begun();
    embedding_slice_backward(numbers(want), dy.data(), shape.dtype, cpu_slice(shape, tokens));
    run_embedding_gradient({numbers(got),
                            dy.data(),
                            data_of<std::int32_t>(order),
                            shape.dtype,
                            {data_of<std::int64_t>(rows), kTokens, 1},
                            kFirst,
                            kOwn,
                            shape.width});
    EXPECT_EQ(got.content(), want.content());
  });
}

}  // namespace
}  // namespace sluice::testing
