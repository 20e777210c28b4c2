// NCCL messages carry bytes between threads and processes where the null GPU computes.
#include <cuda_bf16.h>
#include <nccl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/gpu/null/fixture.hpp"
#include "tests/gpu/null/queue.hpp"

namespace null_gpu {
namespace {

// Of the process: the libraries read it once, later.
const int kComputes = ::setenv("NULL_GPU_COMPUTES", "early", /*overwrite=*/0);
const int kCards = ::setenv("NULL_GPU_COUNT", "3", /*overwrite=*/1);
constexpr const char* kIdOfParent = "SLUICE_TEST_NCCL_ID";

ncclUniqueId new_id() {
  ncclUniqueId id{};
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  return id;
}

// One rank: a communicator, a stream and arrays on the device.
class Rank {
 public:
  Rank(const ncclUniqueId& id, int rank, int size) : number(rank), size(size) {
    EXPECT_EQ(cudaSetDevice(rank), cudaSuccess);
    EXPECT_EQ(ncclCommInitRank(&comm, size, id, rank), ncclSuccess);
  }
  ~Rank() {
    if (comm != nullptr) {
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    }
    for (void* const array : arrays_) EXPECT_EQ(cudaFree(array), cudaSuccess);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  // An array of the device, whose bytes the host may read while the null GPU computes.
  template <typename T>
  T* array(const std::vector<T>& values) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, std::max<std::size_t>(values.size() * sizeof(T), 1)),
              cudaSuccess);
    arrays_.push_back(memory);
    std::copy(values.begin(), values.end(), static_cast<T*>(memory));
    return static_cast<T*>(memory);
  }
  void wait() const { EXPECT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess); }

  const int number, size;
  ncclComm_t comm = nullptr;
  const Stream stream;

 private:
  std::vector<void*> arrays_;
};

// Runs `body` on a thread for each rank. Later ranks begin later.
void on_ranks(int size, const std::function<void(Rank&)>& body) {
  const ncclUniqueId id = new_id();
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      std::this_thread::sleep_for(std::chrono::milliseconds{5 * r});
      Rank rank(id, r, size);
      body(rank);
      rank.wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<float> numbers(std::size_t count, float first) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

std::vector<float> read(const Rank& rank, const float* array, std::size_t count) {
  rank.wait();
  return {array, array + count};
}

class NullGpuMessages : public NullGpu, public testing::WithParamInterface<const char*> {
 protected:
  NullGpuMessages() { set_schedule(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Schedules, NullGpuMessages, testing::Values("early", "late", "7"));

TEST_P(NullGpuMessages, AGroupPassesInAnyOrder) {
  constexpr std::size_t kMany = 300'000;  // more than sockets hold
  on_ranks(2, [](Rank& rank) {
    const int peer = 1 - rank.number;
    const auto first = static_cast<float>(1000 * rank.number);
    const float* large = rank.array(numbers(kMany, first));
    const float* small = rank.array(numbers(3, first + 0.5F));
    float* from_large = rank.array(numbers(kMany, -1));
    float* from_small = rank.array(numbers(3, -1));
    const auto send = [&] {
      EXPECT_EQ(ncclSend(large, kMany, ncclFloat32, peer, rank.comm, rank.stream.get()), 0);
      EXPECT_EQ(ncclSend(small, 3, ncclFloat32, peer, rank.comm, rank.stream.get()), 0);
    };
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    if (rank.number == 0) send();
    EXPECT_EQ(ncclRecv(from_large, kMany, ncclFloat32, peer, rank.comm, rank.stream.get()), 0);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(ncclRecv(from_small, 3, ncclFloat32, peer, rank.comm, rank.stream.get()), 0);
    if (rank.number == 1) send();
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    const auto other = static_cast<float>(1000 * peer);
    EXPECT_EQ(read(rank, from_large, kMany), numbers(kMany, other));
    EXPECT_EQ(read(rank, from_small, 3), numbers(3, other + 0.5F));
  });
  EXPECT_EQ(grown("/fault_count"), 0);
}

TEST_P(NullGpuMessages, MessagesOfOnePairKeepTheirOrder) {
  on_ranks(3, [](Rank& rank) {
    const int to = (rank.number + 1) % 3, from = (rank.number + 2) % 3;
    float* in = rank.array(numbers(5, 0));
    for (int round = 0; round < 4; ++round) {
      const auto value = static_cast<float>(10 * round);
      const float* out = rank.array(numbers(5, value + static_cast<float>(rank.number)));
      if (rank.number != 1) {
        EXPECT_EQ(ncclSend(out, 5, ncclFloat32, to, rank.comm, rank.stream.get()), 0);
      }
      EXPECT_EQ(ncclRecv(in, 5, ncclFloat32, from, rank.comm, rank.stream.get()), 0);
      if (rank.number == 1) {
        EXPECT_EQ(ncclSend(out, 5, ncclFloat32, to, rank.comm, rank.stream.get()), 0);
      }
      EXPECT_EQ(read(rank, in, 5), numbers(5, value + static_cast<float>(from)));
    }
  });
  EXPECT_EQ(grown("/fault_count"), 0);
}

TEST_P(NullGpuMessages, CollectiveOperationsGiveEachRankItsPart) {
  on_ranks(3, [](Rank& rank) {
    const auto r = static_cast<float>(rank.number);
    const cudaStream_t stream = rank.stream.get();
    // In place: each rank's part lies where it is gathered.
    float* gathered = rank.array(numbers(6, -1));
    gathered[2 * rank.number] = gathered[2 * rank.number + 1] = r;
    EXPECT_EQ(ncclAllGather(gathered + std::ptrdiff_t{2} * rank.number, gathered, 2, ncclFloat32,
                            rank.comm, stream),
              ncclSuccess);
    EXPECT_EQ(read(rank, gathered, 6), (std::vector<float>{0, 0, 1, 1, 2, 2}));

    float* all = rank.array(numbers(4, r));
    EXPECT_EQ(ncclAllReduce(all, all, 4, ncclFloat32, ncclSum, rank.comm, stream), ncclSuccess);
    EXPECT_EQ(read(rank, all, 4), (std::vector<float>{3, 6, 9, 12}));

    float* copied = rank.array(numbers(2, 10 * r));
    EXPECT_EQ(ncclBroadcast(copied, copied, 2, ncclFloat32, 2, rank.comm, stream), ncclSuccess);
    EXPECT_EQ(read(rank, copied, 2), numbers(2, 20));

    float* one = rank.array(numbers(2, r));
    EXPECT_EQ(ncclReduce(one, one, 2, ncclFloat32, ncclMax, 1, rank.comm, stream), ncclSuccess);
    EXPECT_EQ(read(rank, one, 2), numbers(2, rank.number == 1 ? 2 : r));

    const float* parts = rank.array(numbers(3, 10 * r));
    float* part = rank.array(numbers(1, -1));
    EXPECT_EQ(ncclReduceScatter(parts, part, 1, ncclFloat32, ncclAvg, rank.comm, stream), 0);
    EXPECT_EQ(read(rank, part, 1), numbers(1, 10 + r));
  });
  EXPECT_EQ(grown("/fault_count"), 0);
}

TEST_P(NullGpuMessages, SumsOf16BitsAreRoundedOnce) {
  on_ranks(3, [](Rank& rank) {
    // 256 + 1 is 256 in bf16, but 256 + 1 + 1 is 258.
    const float own = rank.number == 0 ? 256 : 1;
    auto* sum = rank.array(std::vector<__nv_bfloat16>{own});
    EXPECT_EQ(ncclAllReduce(sum, sum, 1, ncclBfloat16, ncclSum, rank.comm, rank.stream.get()), 0);
    rank.wait();
    EXPECT_EQ(static_cast<float>(*sum), 258);
  });
  on_ranks(2, [](Rank& rank) {
    auto* least = rank.array(std::vector<std::int64_t>{rank.number, -rank.number});
    EXPECT_EQ(ncclAllReduce(least, least, 2, ncclInt64, ncclMin, rank.comm, rank.stream.get()), 0);
    rank.wait();
    EXPECT_EQ(least[0], 0);
    EXPECT_EQ(least[1], -1);
  });
  EXPECT_EQ(grown("/fault_count"), 0);
}

TEST_P(NullGpuMessages, CommunicatorsOfOneProcessAreApart) {
  const ncclUniqueId id = new_id(), other = new_id();
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      Rank a(id, r, 2), b(other, r, 2);
      float* of_a = a.array(numbers(1, 1));
      float* of_b = b.array(numbers(1, 10));
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      for (Rank* rank : r == 0 ? std::array{&a, &b} : std::array{&b, &a}) {
        float* data = rank == &a ? of_a : of_b;
        EXPECT_EQ(
            ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, rank->comm, rank->stream.get()),
            ncclSuccess);
      }
      EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
      EXPECT_EQ(read(a, of_a, 1), numbers(1, 2));
      EXPECT_EQ(read(b, of_b, 1), numbers(1, 20));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(grown("/fault_count"), 0);
}

TEST_P(NullGpuMessages, OnlyTheFirstMessageMakesTheHostWaitForThePeer) {
  std::atomic<bool> receives{false}, receives_again{false}, sent_again{false};
  on_ranks(2, [&](Rank& rank) {
    float* data = rank.array(numbers(1, 0));
    if (rank.number == 0) {
      EXPECT_EQ(ncclSend(data, 1, ncclFloat32, 1, rank.comm, rank.stream.get()), ncclSuccess);
      EXPECT_TRUE(receives);
      EXPECT_EQ(ncclSend(data, 1, ncclFloat32, 1, rank.comm, rank.stream.get()), ncclSuccess);
      EXPECT_FALSE(receives_again);
      sent_again = true;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds{50});
      receives = true;
      EXPECT_EQ(ncclRecv(data, 1, ncclFloat32, 0, rank.comm, rank.stream.get()), ncclSuccess);
      while (!sent_again) std::this_thread::yield();
      receives_again = true;
      EXPECT_EQ(ncclRecv(data, 1, ncclFloat32, 0, rank.comm, rank.stream.get()), ncclSuccess);
    }
  });
  EXPECT_EQ(grown("/fault_count"), 0);
}

TEST_P(NullGpuMessages, SizesThatDifferAreAFault) {
  on_ranks(2, [](Rank& rank) {
    float* data = rank.array(numbers(2, 7));
    if (rank.number == 0) {
      EXPECT_EQ(ncclSend(data, 1, ncclFloat32, 1, rank.comm, rank.stream.get()), ncclSuccess);
    } else {
      EXPECT_EQ(ncclRecv(data, 2, ncclFloat32, 0, rank.comm, rank.stream.get()), ncclSuccess);
      EXPECT_EQ(read(rank, data, 2), numbers(2, 7));
    }
  });
  expect_fault("8 bytes of a send are expected from rank 0, which made a send of 4 bytes");
}

TEST_P(NullGpuMessages, TwoOfOneRankAreAFault) {
  const ncclUniqueId id = new_id();
  const Rank first(id, 0, 2);
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  ncclComm_t second = nullptr;
  EXPECT_EQ(ncclCommInitRank(&second, 2, id, 0), ncclSystemError);
  expect_fault("rank 0 of communicator");
}

TEST_P(NullGpuMessages, TwoRanksOfAHostOnOneCardAreAFault) {
  const ncclUniqueId id = new_id();
  const Rank first(id, 0, 2);
  ncclComm_t second = nullptr;
  EXPECT_EQ(ncclCommInitRank(&second, 2, id, 1), ncclInvalidUsage);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("Duplicate GPU detected"),
            std::string::npos);
  expect_fault("Duplicate GPU detected: another rank of this host is on CUDA device 0");
}

TEST_P(NullGpuMessages, AnAbortEndsWhatWaits) {
  const ncclUniqueId id = new_id();
  Rank rank(id, 0, 2);
  float* data = rank.array(numbers(1, 7));
  std::thread aborts([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
    EXPECT_EQ(ncclCommAbort(rank.comm), ncclSuccess);
  });
  EXPECT_EQ(ncclRecv(data, 1, ncclFloat32, 1, rank.comm, rank.stream.get()), ncclSuccess);
  rank.wait();
  aborts.join();
  rank.comm = nullptr;
  EXPECT_EQ(*data, 7);
  EXPECT_EQ(grown("/fault_count"), 0);
}

// Rank 1 of a test below, in a process of its own.
TEST_P(NullGpuMessages, DISABLED_RankOfAnotherProcess) {
  ncclUniqueId id{};
  std::string(std::getenv(kIdOfParent)).copy(id.internal, sizeof id.internal - 1);
  Rank rank(id, 1, 2);
  float* data = rank.array(numbers(100'000, 1));
  EXPECT_EQ(ncclAllReduce(data, data, 100'000, ncclFloat32, ncclSum, rank.comm, rank.stream.get()),
            ncclSuccess);
  EXPECT_EQ(read(rank, data, 2), (std::vector<float>{1, 3}));
}

TEST_P(NullGpuMessages, ProcessesExchangeToo) {
  const ncclUniqueId id = new_id();
  ::setenv(kIdOfParent, id.internal, 1);
  std::string program = "/proc/self/exe", all = "--gtest_also_run_disabled_tests",
              one = "--gtest_filter=*RankOfAnotherProcess/0";
  std::array<char*, 4> arguments{program.data(), all.data(), one.data(), nullptr};
  pid_t child = 0;
  ASSERT_EQ(::posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments.data(), environ), 0);
  {
    Rank rank(id, 0, 2);
    float* data = rank.array(numbers(100'000, 0));
    EXPECT_EQ(
        ncclAllReduce(data, data, 100'000, ncclFloat32, ncclSum, rank.comm, rank.stream.get()),
        ncclSuccess);
    EXPECT_EQ(read(rank, data, 2), (std::vector<float>{1, 3}));
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::unsetenv(kIdOfParent);
}

}  // namespace
}  // namespace null_gpu
