// What every communicator has to do: the same tests for threads of one process, for Gloo, and for
// ranks of one host, with and without reading each other's memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <thread>

#include "base/error.hpp"
#include "kernels/cpu/cast.hpp"
#include "parallel/comm/exchange_plan.hpp"
#include "tests/parallel/backends.hpp"
#include "tests/parallel/contract_numbers.hpp"

namespace sluice {
namespace {

using std::chrono::milliseconds;

class Contract : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  [[nodiscard]] static int group_size() { return std::get<1>(GetParam()); }
  [[nodiscard]] static Group group(milliseconds timeout = kPatience) {
    for (const Backend& backend : all_backends()) {
      if (backend.name == std::get<0>(GetParam())) return backend.make(group_size(), timeout);
    }
    ADD_FAILURE() << "no such backend";
    return {};
  }
};

// A piece of the test: where rank r's share begins, in elements of the buffer.
struct Layout {
  std::int64_t offset = 0;
  std::int64_t elems = 0;
  std::int64_t stride = 0;
};

std::int64_t extent(const std::vector<Layout>& layouts, int size) {
  std::int64_t end = 0;
  for (const Layout& l : layouts) end = std::max(end, l.offset + l.stride * (size - 1) + l.elems);
  return end;
}

// What a rank of a group of `size` adds of the element.
float share_value(ReduceDtype dtype, int size, int rank, std::int64_t index) {
  const float value = input_value(dtype.input, rank, index);
  return dtype.rounds() && size > 1 ? float_of_bf16(bf16_bits(value)) : value;
}

std::vector<float> serial_sums(const std::vector<Layout>& layouts, ReduceDtype dtype, int rank,
                               int size, const std::vector<float>& start) {
  std::vector<float> sums = start;
  std::size_t place = 0;
  for (const Layout& layout : layouts) {
    for (std::int64_t i = 0; i < layout.elems; ++i, ++place) {
      const std::int64_t at = layout.offset + rank * layout.stride + i;
      volatile float sum = share_value(dtype, size, 0, at);  // volatile: one rounding an addition
      for (int r = 1; r < size; ++r) sum = sum + share_value(dtype, size, r, at);
      sums[place] = start[place] + sum;
    }
  }
  return sums;
}

// The rank's output of a reduce_scatter of the pieces; accumulates onto `output`.
void reduce(Communicator& communicator, const std::vector<Layout>& layouts, ReduceDtype dtype,
            std::vector<float>& output, bool accumulate) {
  const std::vector<char> input =
      make_input(dtype.input, communicator.rank(), extent(layouts, communicator.size()));
  std::vector<ReduceScatterPiece> pieces;
  std::int64_t total = 0;
  for (const Layout& layout : layouts) {
    pieces.push_back({.input = input.data() + layout.offset * size_of(dtype.input),
                      .output = output.data() + total,
                      .elems = layout.elems,
                      .stride = layout.stride,
                      .accumulate = accumulate});
    total += layout.elems;
  }
  std::vector<char> staging(
      static_cast<std::size_t>(communicator.reduce_scatter_staging_bytes(total, dtype)));
  communicator.reduce_scatter(pieces, dtype, staging.data()).wait();
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

constexpr std::array kDTypes{DType::kFloat32, DType::kBFloat16, DType::kFloat16};
constexpr ReduceDtype kRounded{DType::kFloat32, DType::kBFloat16};
constexpr std::array<ReduceDtype, 4> kReduceDtypes{DType::kFloat32, DType::kBFloat16,
                                                   DType::kFloat16, kRounded};

TEST_P(Contract, ReduceScatterIsTheSerialOrderedSum) {
  const std::vector<std::vector<Layout>> cases{
      {{0, 1, 1}},
      {{0, 1037, 1037}},
      {{3, 17, 40}, {20, 5, 40}, {500, 1, 3}, {700, 0, 0}, {701, 4099, 5000}},
  };
  run_ranks_ok(group(), [&](Communicator& communicator) {
    for (const auto& layouts : cases) {
      for (const ReduceDtype dtype : kReduceDtypes) {
        for (const bool accumulate : {false, true}) {
          std::int64_t total = 0;
          for (const Layout& layout : layouts) total += layout.elems;
          std::vector<float> output(static_cast<std::size_t>(total), 0.37F);
          const std::vector<float> start(output.size(), accumulate ? 0.37F : 0.0F);
          reduce(communicator, layouts, dtype, output, accumulate);
          std::vector<float> expected =
              serial_sums(layouts, dtype, communicator.rank(), communicator.size(), start);
          EXPECT_EQ(output, expected) << name_of(dtype) << " accumulate " << accumulate;
        }
      }
    }
  });
}

// More than the staging holds at once, and however it is cut: the same bits.
TEST_P(Contract, ReduceScatterDoesNotDependOnTheCuts) {
  for (const ReduceDtype dtype : {ReduceDtype(DType::kFloat32), kRounded}) {
    const std::int64_t elems = 2 * exchange_batch_elems(group_size(), dtype) + 1003;
    run_ranks_ok(group(), [&](Communicator& communicator) {
      std::vector<float> whole(static_cast<std::size_t>(elems));
      reduce(communicator, {{0, elems, elems}}, dtype, whole, false);
      std::vector<Layout> cuts;
      for (std::int64_t at = 0, n = 1; at < elems; at += n, n = n * 3 + 1) {
        n = std::min(n, elems - at);
        cuts.push_back({at, n, elems});
      }
      std::vector<float> cut(static_cast<std::size_t>(elems));
      reduce(communicator, cuts, dtype, cut, false);
      EXPECT_TRUE(bits_of(whole) == bits_of(cut));
      const std::vector<Layout> probe{{0, 1000, elems}};
      const std::vector<float> expected = serial_sums(
          probe, dtype, communicator.rank(), communicator.size(), std::vector<float>(1000));
      EXPECT_EQ(std::vector<float>(whole.begin(), whole.begin() + 1000), expected);
    });
  }
}

TEST_P(Contract, ReduceScatterIntoTheOwnShare) {
  run_ranks_ok(group(), [&](Communicator& communicator) {
    constexpr std::int64_t kElems = 301;
    const int rank = communicator.rank();
    const std::vector<Layout> layout{{0, kElems, kElems}};
    std::vector<char> bytes = make_input(DType::kFloat32, rank, kElems * communicator.size());
    std::vector<float> buffer(bytes.size() / 4);
    std::memcpy(buffer.data(), bytes.data(), bytes.size());
    std::vector<char> staging(static_cast<std::size_t>(
        communicator.reduce_scatter_staging_bytes(kElems, DType::kFloat32)));
    float* own = buffer.data() + rank * kElems;
    communicator
        .reduce_scatter(
            {{.input = buffer.data(), .output = own, .elems = kElems, .stride = kElems}},
            DType::kFloat32, staging.data())
        .wait();
    EXPECT_EQ(std::vector<float>(own, own + kElems),
              serial_sums(layout, DType::kFloat32, rank, communicator.size(),
                          std::vector<float>(kElems)));
  });
}

TEST_P(Contract, AllGatherInPlaceAndNot) {
  run_ranks_ok(group(), [&](Communicator& communicator) {
    const int size = communicator.size();
    for (const DType dtype : kDTypes) {
      const std::int64_t width = size_of(dtype);
      constexpr std::int64_t kElems = 1201;
      constexpr std::int64_t kStride = 1300;
      const std::vector<char> own = make_input(dtype, communicator.rank(), kElems);
      const auto bytes = static_cast<std::size_t>(kElems * width);
      std::vector<char> apart(static_cast<std::size_t>(kStride * width * size), 'x');
      std::vector<char> in_place = apart;
      char* place = in_place.data() + communicator.rank() * kStride * width;
      std::memcpy(place, own.data(), bytes);
      // Two pieces: one out of place, one in place; and one that is empty.
      communicator
          .all_gather({{own.data(), apart.data(), kElems, kStride},
                       {nullptr, nullptr, 0, 0},
                       {place, in_place.data(), kElems, kStride}},
                      dtype)
          .wait();
      for (int r = 0; r < size; ++r) {
        const std::vector<char> expected = make_input(dtype, r, kElems);
        const std::size_t at = static_cast<std::size_t>(r * kStride * width);
        EXPECT_EQ(std::memcmp(apart.data() + at, expected.data(), bytes), 0);
        EXPECT_EQ(apart[at + bytes], 'x') << "wrote into the gap";
      }
      EXPECT_EQ(apart, in_place);
    }
  });
}

TEST_P(Contract, ManyInFlightRunInOrder) {
  run_ranks_ok(group(), [&](Communicator& communicator) {
    constexpr int kOps = 60;
    const auto n = static_cast<std::size_t>(communicator.size());
    // Every reduce_scatter adds the all-gathered values of the step before: any overtaking shows.
    std::vector<float> gathered(n, 0);
    float own = static_cast<float>(communicator.rank() + 1);
    std::vector<char> staging(
        static_cast<std::size_t>(communicator.reduce_scatter_staging_bytes(1, DType::kFloat32)));
    std::vector<Ticket> tickets;
    for (int i = 0; i < kOps; ++i) {
      tickets.push_back(communicator.all_gather({{&own, gathered.data(), 1, 1}}, DType::kFloat32));
      tickets.push_back(communicator.reduce_scatter(
          {{.input = gathered.data(), .output = &own, .elems = 1, .stride = 1}}, DType::kFloat32,
          staging.data()));
    }
    if (communicator.rank() % 2 == 0) {
      for (const Ticket& ticket : tickets) ticket.wait();
    } else {
      for (std::size_t i = tickets.size(); i-- > 0;) tickets[i].wait();
    }
    for (const Ticket& ticket : tickets) EXPECT_TRUE(ticket.done());
    // All ranks gather (1, 2, ..., n); rank r then holds n * (r + 1); and so on.
    double expected = communicator.rank() + 1;
    for (int i = 0; i < kOps; ++i) expected *= communicator.size();
    EXPECT_FLOAT_EQ(own, static_cast<float>(expected));
  });
}

TEST_P(Contract, ValuesAndBarrier) {
  run_ranks_ok(group(), [&](Communicator& communicator) {
    for (int round = 0; round < 20; ++round) {
      const std::array<double, 2> mine{communicator.rank() + 0.1, round * 1e300};
      const std::vector<double> all = communicator.all_gather_values(mine);
      ASSERT_EQ(all.size(), 2U * static_cast<std::size_t>(communicator.size()));
      for (int r = 0; r < communicator.size(); ++r) {
        EXPECT_EQ(all[2 * static_cast<std::size_t>(r)], r + 0.1);
        EXPECT_EQ(all[2 * static_cast<std::size_t>(r) + 1], round * 1e300);
      }
      communicator.barrier();
    }
    EXPECT_TRUE(communicator.all_gather_values({}).empty());
  });
}

TEST_P(Contract, BytesOfEveryRankArriveByRank) {
  run_ranks_ok(group(), [&](Communicator& communicator) {
    for (const std::size_t bytes : {0U, 1U, 7U, 5003U}) {
      const auto mine = static_cast<std::byte>(communicator.rank() + 1);
      const auto all = communicator.all_gather_bytes(std::vector<std::byte>(bytes, mine));
      ASSERT_EQ(all.size(), bytes * static_cast<std::size_t>(communicator.size()));
      for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], std::byte(1 + i / bytes)) << i;
    }
  });
}

TEST_P(Contract, NobodyLeavesABarrierBeforeAllCame) {
  std::atomic<int> came{0};
  run_ranks_ok(group(), [&](Communicator& communicator) {
    std::this_thread::sleep_for(milliseconds{20 * communicator.rank()});
    ++came;
    communicator.barrier();
    EXPECT_EQ(came.load(), communicator.size());
  });
}

TEST_P(Contract, ARankThatDoesNotComeIsATimeout) {
  if (group_size() == 1) return;
  // Local groups do not join, so they can be impatient; of the others one size waits for all.
  const bool local = std::get<0>(GetParam()) == "local";
  if (!local && group_size() != 3) return;
  const int patience_ms = local ? 200 : 1200;
  Group ranks = group(milliseconds{patience_ms});
  std::atomic<int> failed{0};
  const auto errors = run_ranks(std::move(ranks), [&](Communicator& communicator) {
    communicator.barrier();
    if (communicator.rank() == 1) {
      // Alive, but elsewhere, until all others have given up.
      for (int i = 0; i < 1000 && failed < communicator.size() - 1; ++i) {
        std::this_thread::sleep_for(milliseconds{10});
      }
      return;
    }
    try {
      communicator.barrier();
    } catch (...) {
      ++failed;
      throw;
    }
  });
  bool named = false;
  for (std::size_t r = 0; r < errors.size(); ++r) {
    if (r == 1) continue;
    EXPECT_TRUE(errors[r].starts_with("[secondary] barrier #")) << errors[r];
    named = named || errors[r].find("no answer from rank 1 within " + std::to_string(patience_ms) +
                                    " ms") != std::string::npos;
  }
  EXPECT_TRUE(named) << errors[0];
}

TEST_P(Contract, ARankThatThrowsFailsTheOthersSoon) {
  if (group_size() == 1) return;
  Group ranks = group();
  const auto started = std::chrono::steady_clock::now();
  const auto errors = run_ranks(std::move(ranks), [&](Communicator& communicator) {
    communicator.barrier();
    if (communicator.rank() == 0) throw Error("the cause");
    communicator.barrier();
  });
  EXPECT_EQ(errors[0], "the cause");
  for (std::size_t r = 1; r < errors.size(); ++r) {
    EXPECT_TRUE(errors[r].starts_with("[secondary] ")) << errors[r];
    EXPECT_NE(errors[r].find(" failed on rank "), std::string::npos) << errors[r];
  }
  EXPECT_LT(std::chrono::steady_clock::now() - started, milliseconds{10'000});
}

TEST_P(Contract, AbortEndsTheGroupHereAndAtThePeers) {
  if (group_size() == 1) return;
  Group ranks = group();
  const auto started = std::chrono::steady_clock::now();
  const auto errors = run_ranks(std::move(ranks), [&](Communicator& communicator) {
    communicator.barrier();
    if (communicator.rank() != 1) return communicator.barrier();
    std::this_thread::sleep_for(milliseconds{50});  // the peers wait
    communicator.abort();
    float in[8] = {};
    float out[8] = {};
    std::string error;
    try {
      communicator.all_gather({{in, out, 1, 1}}, DType::kFloat32).wait();
    } catch (const CommError& caught) {
      error = caught.what();
    }
    EXPECT_NE(error.find("aborted on rank 1"), std::string::npos) << error;
    EXPECT_THROW(communicator.barrier(), CommError) << "the group is lost";
    throw Error(error);
  });
  for (const std::string& error : errors) EXPECT_NE(error, "");
  EXPECT_LT(std::chrono::steady_clock::now() - started, milliseconds{10'000});
}

TEST_P(Contract, DestructionWithOperationsInFlightIsBounded) {
  if (group_size() == 1) return;
  Group ranks = group();
  const auto started = std::chrono::steady_clock::now();
  std::vector<float> memory(64);
  std::vector<Ticket> tickets(ranks.size());
  const auto errors = run_ranks(std::move(ranks), [&](Communicator& communicator) {
    communicator.barrier();
    if (communicator.rank() == 0) return;  // never posts its part
    float* at = memory.data() + 8 * communicator.rank();
    tickets[static_cast<std::size_t>(communicator.rank())] =
        communicator.all_gather({{at, at, 1, 1}}, DType::kFloat32);
  });
  for (std::size_t r = 1; r < tickets.size(); ++r) {
    // A rank that comes when the group is lost already is refused.
    if (errors[r].empty()) {
      EXPECT_THROW(tickets[r].wait(), CommError);
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - started, milliseconds{10'000});
}

INSTANTIATE_TEST_SUITE_P(Backends, Contract,
                         ::testing::Combine(::testing::ValuesIn(backend_names()),
                                            ::testing::Values(1, 2, 3, 4)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace sluice
