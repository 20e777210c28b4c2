// The bodies of the CUDA kernels of an embedding on the host, bit for bit against the CPU's
// kernels: of a whole table, and of a rank's slice.
#include "kernels/cpu/embedding/embedding.hpp"
#include "kernels/cpu/embedding/embedding_slice.hpp"
#include "kernels/cuda/embedding_body.hpp"
#include "tests/kernels/cuda_bodies.hpp"

namespace sluice::testing {
namespace {

constexpr std::int64_t kTableRows = 11;
constexpr std::int64_t kWords = 40, kFirst = 8, kOwn = 24, kTokens = 61;  // of a slice

std::vector<std::int32_t> order_of(const cuda::TokenRows& at) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(at.tokens), -1);
  for (std::int64_t token = 0; token < at.tokens; ++token) {
    order.at(static_cast<std::size_t>(cuda::place_of_token(at, token))) =
        static_cast<std::int32_t>(token);
  }
  return order;
}

// Many tokens of few rows; one row; each token a row of its own.
std::vector<std::vector<std::int64_t>> token_lists() {
  std::vector<std::int64_t> many, one(9, 4), own;
  for (std::int64_t t = 0; t < 101; ++t) many.push_back(t * t % kTableRows);
  for (std::int64_t t = kTableRows; t-- > 0;) own.push_back(t);
  return {many, one, own};
}

template <class T>
void expect_bits_of_the_cpu(const Shape& shape, const cuda::TokenRows& at,
                            const std::vector<std::int64_t>& tokens) {
  const Buffer dy = random(shape.dtype, at.tokens * shape.width, 21);
  const auto begun = [&] { return random(DType::kFloat32, kTableRows * shape.width, 22); };
  const Buffer want = begun(), got = begun();
  embedding_backward(numbers(want), tokens, dy.data(), shape.dtype, kTableRows, shape.width);
  std::vector<std::int32_t> order = order_of(at);
  const cuda::EmbeddingGradient args{numbers(got), dy.data(), order.data(), shape.dtype,
                                     at,           0,         kTableRows,   shape.width};
  on_rows(at.tokens, [&](std::int64_t place, const Worker& worker) {
    cuda::embedding_row_body<T>(args, place, worker, shape.aligned());
  });
  EXPECT_EQ(got.content(), want.content());
}

TEST(CudaEmbeddingBody, AddsTheTokensOfARowInTheOrderOfTheCpu) {
  for_shapes([](const Shape& shape, auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    for (const std::vector<std::int64_t>& tokens : token_lists()) {
      const auto count = static_cast<std::int64_t>(tokens.size());
      expect_bits_of_the_cpu<T>(shape, {tokens.data(), count, 1}, tokens);
    }
  });
}

TEST(CudaEmbeddingBody, WithoutRowsATokenHasItsPlaceInThePeriod) {
  for_shapes([](const Shape& shape, auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    for (const std::int64_t count : {std::int64_t{21}, std::int64_t{24}, std::int64_t{3}}) {
      std::vector<std::int64_t> positions;
      for (std::int64_t t = 0; t < count; ++t) positions.push_back(t % 7);
      expect_bits_of_the_cpu<T>(shape, {nullptr, count, 7}, positions);
    }
  });
}

TEST(CudaEmbeddingBody, OrdersTokensByRowThenByTheirOrder) {
  const std::vector<std::int64_t> rows{5, 2, 5, 0, 2, 5};
  EXPECT_EQ(order_of({rows.data(), 6, 1}), (std::vector<std::int32_t>{3, 1, 4, 0, 2, 5}));
  EXPECT_EQ(order_of({nullptr, 5, 2}), (std::vector<std::int32_t>{0, 2, 4, 1, 3}));
}

TEST(CudaEmbeddingBody, ATokenOutsideTheTableAddsNothing) {
  const std::vector<std::int64_t> rows{-1, kTableRows, 3};
  const Shape shape{DType::kFloat32, 5};
  const Buffer dy = random(shape.dtype, 3 * shape.width, 23);
  const std::vector<std::byte> zeros =
      as_bytes(std::vector<float>(kTableRows * 5), DType::kFloat32);
  const Buffer grad(zeros), want(zeros);
  embedding_backward(numbers(want), {rows.data() + 2, 1}, numbers(dy) + 2 * shape.width,
                     shape.dtype, kTableRows, shape.width);
  std::vector<std::int32_t> order = order_of({rows.data(), 3, 1});
  const cuda::EmbeddingGradient args{numbers(grad),       dy.data(), order.data(), shape.dtype,
                                     {rows.data(), 3, 1}, 0,         kTableRows,   shape.width};
  on_rows(3, [&](std::int64_t place, const Worker& worker) {
    cuda::embedding_row_body<float>(args, place, worker, shape.aligned());
  });
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

cuda::TokenLookup lookup_of(const Shape& shape, const std::vector<std::int64_t>& tokens,
                            const Buffer& out, const Buffer& table) {
  return {out.data(), table.data(), tokens.data(), shape.dtype, std::ssize(tokens),
          kFirst,     kOwn,         kWords,        shape.width};
}

EmbeddingSlice cpu_slice(const Shape& shape, const std::vector<std::int64_t>& tokens) {
  return {tokens, kFirst, kOwn, kWords, shape.width};
}

TEST(CudaEmbeddingBody, LookupHasTheBitsOfTheCpu) {
  for_shapes([&](const Shape& shape, auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const std::vector<std::int64_t> tokens = some_tokens();
    const Buffer table = random(shape.dtype, kOwn * shape.width, 3);
    const auto bytes = static_cast<std::size_t>(kTokens * shape.width * size_of(shape.dtype));
    const Buffer want(bytes), got(bytes);
    embedding_slice_forward(want.data(), table.data(), shape.dtype, cpu_slice(shape, tokens));
    const cuda::TokenLookup args = lookup_of(shape, tokens, got, table);
    on_rows(kTokens, [&](std::int64_t t, const Worker& worker) {
      cuda::token_lookup_body<T>(args, t, worker, shape.aligned());
    });
    EXPECT_EQ(got.content(), want.content());
  });
}

TEST(CudaEmbeddingBody, AWordOutsideTheTableIsSeen) {
  const Shape shape{DType::kFloat32, 5};
  const std::vector<std::int64_t> tokens{kFirst, -1, kWords};
  const Buffer table = random(shape.dtype, kOwn * shape.width, 3), got(floats(3 * shape.width));
  const cuda::TokenLookup args = lookup_of(shape, tokens, got, table);
  on_rows(3, [&](std::int64_t t, const Worker& worker) {
    cuda::token_lookup_body<float>(args, t, worker, false);
  });
  EXPECT_EQ(numbers(got)[0], numbers(table)[0]);
  for (const int t : {1, 2}) EXPECT_TRUE(std::isnan(numbers(got)[t * shape.width])) << t;
}

TEST(CudaEmbeddingBody, ASliceAddsItsTokensWithTheBitsOfTheCpu) {
  for_shapes([&](const Shape& shape, auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const std::vector<std::int64_t> tokens = some_tokens();
    const cuda::TokenRows at{tokens.data(), kTokens, 1};
    std::vector<std::int32_t> order = order_of(at);
    const Buffer dy = random(shape.dtype, kTokens * shape.width, 4);
    const auto begun = [&] { return random(DType::kFloat32, kOwn * shape.width, 5); };
    const Buffer want = begun(), got = begun();
    embedding_slice_backward(numbers(want), dy.data(), shape.dtype, cpu_slice(shape, tokens));
    const cuda::EmbeddingGradient args{numbers(got), dy.data(), order.data(), shape.dtype,
                                       at,           kFirst,    kOwn,         shape.width};
    on_rows(kTokens, [&](std::int64_t place, const Worker& worker) {
      cuda::embedding_row_body<T>(args, place, worker, shape.aligned());
    });
    EXPECT_EQ(got.content(), want.content());
  });
}

}  // namespace
}  // namespace sluice::testing
