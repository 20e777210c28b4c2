// The body of the CUDA kernel that adds shares, on the host, bit for bit against ordered_add.
#include "parallel/comm/ordered_add_body.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "parallel/comm/ordered_add.hpp"

namespace sluice {
namespace {

constexpr int kRanks = 3;
constexpr int kRank = 1;
// A segment longer than a chunk, one of a single element, one that ends with its chunk, none, and
// a rest.
constexpr std::array<std::int64_t, 5> kSegments{2 * kAddElems + 77, 1, kAddElems, 0, 33};

// Finite values of mixed signs and sizes.
template <class T>
std::vector<T> shares_of(std::int64_t elems, int seed) {
  std::vector<T> values(static_cast<std::size_t>(elems));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto k = static_cast<int>(i * 37 + static_cast<std::size_t>(seed) * 101) % 509 - 254;
    cuda::narrow(static_cast<float>(k) * (i % 5 == 0 ? 97.3F : 0.0137F), &values[i]);
  }
  return values;
}

// All threads of a launch in turn.
template <class T>
void run(const AddTable& table) {
  for (std::int64_t chunk = 0; chunk < table.chunks; ++chunk) {
    for (int thread = 0; thread < kAddThreads; ++thread) add_body<T>(table, chunk, thread);
  }
}

template <class T>
void expect_bits_of_the_cpu(DType dtype, bool accumulate) {
  std::int64_t total = 0;
  for (const std::int64_t elems : kSegments) total += elems;
  const std::int64_t stride = total + 11;
  const std::vector<T> own = shares_of<T>(total, 1);
  const std::vector<T> staged = shares_of<T>(stride * (kRanks - 1), 2);
  std::vector<float> want = shares_of<float>(total, 3);
  std::vector<float> got = want;
  AddTable table{};
  table.shares = {stride, kRank, kRanks, dtype};
  std::int64_t begin = 0;
  for (const std::int64_t elems : kSegments) {
    if (elems > 0) {
      append(table,
             {own.data() + begin, staged.data() + begin, got.data() + begin, elems, accumulate});
    }
    const std::array<const void*, kRanks> shares{staged.data() + begin, own.data() + begin,
                                                 staged.data() + stride + begin};
    ordered_add(shares, dtype, elems, want.data() + begin, accumulate);
    begin += elems;
  }
  run<T>(table);
  EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0)
      << name_of(dtype) << (accumulate ? ", added to the output" : "");
}

TEST(OrderedAddBody, AddsManySegmentsInTheOrderOfTheCpu) {
  for (const bool accumulate : {false, true}) {
    expect_bits_of_the_cpu<float>(DType::kFloat32, accumulate);
    expect_bits_of_the_cpu<cuda::Bf16>(DType::kBFloat16, accumulate);
    expect_bits_of_the_cpu<cuda::Half>(DType::kFloat16, accumulate);
  }
}

TEST(OrderedAddBody, AFullTableFindsEachSegment) {
  std::vector<float> own(kAddsOfLaunch), output(kAddsOfLaunch, -1.0F);
  AddTable table{};
  table.shares = {0, 0, 1, DType::kFloat32};
  for (std::size_t i = 0; i < own.size(); ++i) {
    own[i] = static_cast<float>(i);
    append(table, {&own[i], nullptr, &output[i], 1, false});
  }
  EXPECT_EQ(table.chunks, kAddsOfLaunch);
  run<float>(table);
  EXPECT_EQ(output, own);
}

TEST(OrderedAddBody, TheOutputMayBeTheOwnShare) {
  std::vector<float> own{1.5F, 2.5F, 3.5F};
  const std::vector<float> staged{1.0F, 2.0F, 3.0F};
  AddTable table{};
  table.shares = {3, 1, 2, DType::kFloat32};
  append(table, {own.data(), staged.data(), own.data(), 3, false});
  run<float>(table);
  EXPECT_EQ(own, (std::vector<float>{2.5F, 4.5F, 6.5F}));
}

}  // namespace
}  // namespace sluice
