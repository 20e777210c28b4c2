// The bodies of the CUDA embedding of a slice on the host: the bits of the CPU's kernels.
#include <algorithm>
#include <numeric>

#include "kernels/cpu/embedding_slice.hpp"
#include "kernels/cuda/embedding_body.hpp"
#include "tests/kernels/cuda_bodies.hpp"

namespace sluice::testing {
namespace {

constexpr std::int64_t kWords = 40, kFirst = 8, kOwn = 24, kTokens = 61;

// Some words often, some never, some of other slices.
std::vector<std::int64_t> some_tokens() {
  std::vector<std::int64_t> tokens;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    tokens.push_back(t % 3 == 0 ? kFirst + 5 : t * t % kWords);
  }
  return tokens;
}

cuda::TokenSlice slice_of(const Shape& shape, const std::vector<std::int64_t>& tokens) {
  return {tokens.data(), std::ssize(tokens), kFirst, kOwn, kWords, shape.width, shape.dtype};
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
    const cuda::TokenLookup args{slice_of(shape, tokens), got.data(), table.data()};
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
  const cuda::TokenLookup args{slice_of(shape, tokens), got.data(), table.data()};
  on_rows(3, [&](std::int64_t t, const Worker& worker) {
    cuda::token_lookup_body<float>(args, t, worker, false);
  });
  EXPECT_EQ(numbers(got)[0], numbers(table)[0]);
  for (const int t : {1, 2}) EXPECT_TRUE(std::isnan(numbers(got)[t * shape.width])) << t;
}

TEST(CudaEmbeddingBody, GradientHasTheBitsOfTheCpu) {
  for_shapes([&](const Shape& shape, auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const std::vector<std::int64_t> tokens = some_tokens();
    std::vector<std::int64_t> order(tokens.size()), sorted;
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return tokens[static_cast<std::size_t>(a)] < tokens[static_cast<std::size_t>(b)];
    });
    for (const std::int64_t t : order) sorted.push_back(tokens[static_cast<std::size_t>(t)]);
    const Buffer dy = random(shape.dtype, kTokens * shape.width, 4);
    const Buffer want = random(DType::kFloat32, kOwn * shape.width, 5), got = want;
    embedding_slice_backward(numbers(want), dy.data(), shape.dtype, cpu_slice(shape, tokens));
    const cuda::TokenGradient args{slice_of(shape, sorted), order.data(), numbers(got), dy.data()};
    on_rows(kTokens, [&](std::int64_t i, const Worker& worker) {
      cuda::token_gradient_body<T>(args, i, worker, shape.aligned());
    });
    EXPECT_EQ(got.content(), want.content());
  });
}

}  // namespace
}  // namespace sluice::testing
