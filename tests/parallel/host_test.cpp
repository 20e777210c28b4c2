// What only ranks of one host have: processes that end in every way, and calls that differ.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.hpp"
#include "base/log.hpp"
#include "parallel/comm/exchange_plan.hpp"
#include "parallel/comm/host/host_memory.hpp"
#include "parallel/comm/host/host_plan.hpp"
#include "parallel/comm/host/host_segment.hpp"
#include "tests/parallel/backends.hpp"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Started with these set, the test program is rank 1 of a group and nothing else.
constexpr char kChildPort[] = "SLUICE_TEST_HOST_CHILD_PORT";
constexpr char kChildDoes[] = "SLUICE_TEST_HOST_CHILD_DOES";

constexpr std::int64_t kElems = 300'007;  // several blocks and an odd rest

std::vector<float> own_input(int rank) {
  std::vector<float> input(2 * kElems);
  for (std::size_t i = 0; i < input.size(); ++i) {
    input[i] = static_cast<float>(i % 1001) * 0.37F + static_cast<float>(rank) * 1e-3F;
  }
  return input;
}

// One of each operation over processes; the sums and shares are checked on both sides. `mapped`:
// what this rank sends lies in memory that the other can map.
void exercise(Communicator& communicator, bool mapped) {
  const std::vector<float> numbers = own_input(communicator.rank());
  HostMemory block(mapped ? 8 * kElems + 12 : 1);
  const auto copy = [&](const std::vector<float>& from) {
    if (!mapped) return from.data();
    float* to = reinterpret_cast<float*>(block.data()) + 3;
    std::copy(from.begin(), from.end(), to);
    return static_cast<const float*>(to);
  };
  std::vector<float> sum(kElems, -1.0F);
  std::vector<char> staging(
      static_cast<std::size_t>(communicator.reduce_scatter_staging_bytes(kElems, DType::kFloat32)));
  communicator
      .reduce_scatter(
          {{.input = copy(numbers), .output = sum.data(), .elems = kElems, .stride = kElems}},
          DType::kFloat32, staging.data())
      .wait();
  std::vector<float> all(2 * kElems);
  communicator.all_gather({{copy(sum), all.data(), kElems, kElems}}, DType::kFloat32).wait();
  const std::vector<float> first = own_input(0);
  const std::vector<float> second = own_input(1);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] != first[i] + second[i]) throw Error("element " + std::to_string(i) + " is wrong");
  }
}

[[noreturn]] void child_main(int port, const std::string& does) {
  try {
    const auto communicator = make_host_communicator(
        {.rank = 1, .size = 2, .master_port = port, .timeout = milliseconds{20'000}});
    communicator->barrier();
    if (does == "kill") raise(SIGKILL);
    if (does == "kill-later") {
      std::this_thread::sleep_for(milliseconds{300});
      raise(SIGKILL);
    }
    if (does == "exit") _exit(3);
    if (does == "stop") std::this_thread::sleep_for(milliseconds{10'000});
    if (does == "abort") communicator->abort();
    if (does == "work") exercise(*communicator, false);
    if (does == "work-mapped") exercise(*communicator, true);
    if (does == "abort") std::this_thread::sleep_for(milliseconds{1000});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "child: %s\n", error_chain(error).c_str());
    _exit(1);
  }
  _exit(0);
}

TEST(HostChild, Only) {
  const char* port = std::getenv(kChildPort);
  if (port != nullptr) child_main(std::stoi(port), std::getenv(kChildDoes));
}

// Rank 1, a process. What is left of it goes with this object.
class Child {
 public:
  Child(int port, const char* does, const char* copy = "auto") : process_(fork()) {
    if (process_ != 0) return;
    setenv(kChildPort, std::to_string(port).c_str(), 1);
    setenv(kChildDoes, does, 1);
    setenv("SLUICE_HOST_COPY", copy, 1);
    execl("/proc/self/exe", "host_child", "--gtest_filter=HostChild.Only", nullptr);
    _exit(127);
  }
  ~Child() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  int wait() {
    int status = 0;
    waitpid(std::exchange(process_, -1), &status, 0);
    return status;
  }
  [[nodiscard]] pid_t process() const { return process_; }

 private:
  pid_t process_;
};

std::unique_ptr<Communicator> rank_0(int port, milliseconds timeout = milliseconds{20'000}) {
  auto communicator =
      make_host_communicator({.rank = 0, .size = 2, .master_port = port, .timeout = timeout});
  communicator->barrier();
  return communicator;
}

std::string failure_of_barrier(Communicator& communicator) {
  try {
    communicator.barrier();
  } catch (const CommError& error) {
    EXPECT_TRUE(error.is_secondary());
    return error.what();
  }
  return "";
}

// A name of a segment is a file's; folders there are other tests' scratch.
std::size_t names_in_shm() {
  const std::filesystem::directory_iterator all("/dev/shm");
  return static_cast<std::size_t>(std::count_if(begin(all), end(all), [](const auto& entry) {
    return !entry.is_directory() &&
           entry.path().filename().string().find("sluice") != std::string::npos;
  }));
}

TEST(HostProcesses, ReadEachOther) {
  const int port = free_port();
  Child child(port, "work");
  const auto communicator = rank_0(port);
  exercise(*communicator, false);
  EXPECT_EQ(child.wait(), 0);
}

// A number of the rendezvous that names a file must not have it mapped, and written to.
TEST(HostProcesses, ASegmentIsAMemfdOfTheRightSize) {
  HostSegment made = HostSegment::create(2);
  EXPECT_NO_THROW((void)HostSegment::attach(getpid(), made.fd(), 2));
  EXPECT_THROW((void)HostSegment::attach(getpid(), made.fd(), 3), IoError);
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(ftruncate(fileno(file), 64 << 20), 0);
  EXPECT_THROW((void)HostSegment::attach(getpid(), fileno(file), 2), IoError);
  std::fclose(file);
}

Group host_group(int size) {
  for (const Backend& backend : network_backends()) {
    if (backend.name == "host") return backend.make(size, milliseconds{20'000});
  }
  return {};
}

// Blocks of other processes that this one has mapped.
int mapped_blocks() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    const bool block = line.find("memfd:sluice-memory") != std::string::npos;
    if (block && line.find(" r--s ") != std::string::npos) ++count;
  }
  return count;
}

TEST(HostProcesses, MapWhatLiesInHostMemory) {
  for (const bool this_one : {false, true}) {
    for (const char* does : {"work", "work-mapped"}) {
      const int port = free_port();
      Child child(port, does);
      {
        const auto communicator = rank_0(port);
        exercise(*communicator, this_one);
        EXPECT_EQ(mapped_blocks(), does == std::string("work-mapped") ? 1 : 0);
        EXPECT_EQ(child.wait(), 0);
      }
      EXPECT_EQ(mapped_blocks(), 0);
    }
  }
}

// Sizes below and above those that are copied in stretches and written past the caches, at odd
// places: the bits of a mapped input are those of a private one.
TEST(Host, MappedInputsGiveTheBitsOfPrivateOnes) {
  constexpr std::int64_t kSizes[] = {1, 1037, (1LL << 18) + 3, (2LL << 20) + 5};
  for (const int size : {2, 3}) {
    run_ranks_ok(host_group(size), [&](Communicator& communicator) {
      EXPECT_TRUE(communicator.maps_host_memory());
      const int rank = communicator.rank();
      for (const std::int64_t elems : kSizes) {
        const auto count = static_cast<std::size_t>(elems);
        std::vector<float> numbers(count * static_cast<std::size_t>(size));
        for (std::size_t i = 0; i < numbers.size(); ++i) {
          numbers[i] = static_cast<float>(i % 1001) * 0.37F + static_cast<float>(rank) * 1e-3F;
        }
        HostMemory block(4 * elems * size + 12);
        auto* mapped = reinterpret_cast<float*>(block.data()) + 1;
        std::copy(numbers.begin(), numbers.end(), mapped);
        const auto reduced = [&](const float* input) {
          std::vector<float> sum(count + 1, -1.0F);
          std::vector<char> staging(static_cast<std::size_t>(
              communicator.reduce_scatter_staging_bytes(elems, DType::kFloat32)));
          communicator
              .reduce_scatter({{input, sum.data() + 1, elems, elems, false}}, DType::kFloat32,
                              staging.data())
              .wait();
          return sum;
        };
        const auto gathered = [&](const float* input) {
          std::vector<float> all(numbers.size());
          communicator.all_gather({{input, all.data(), elems, elems}}, DType::kFloat32).wait();
          return all;
        };
        EXPECT_TRUE(reduced(mapped) == reduced(numbers.data())) << elems;
        EXPECT_TRUE(gathered(mapped) == gathered(numbers.data())) << elems;
        communicator.barrier();
      }
    });
  }
}

TEST(HostMemory, IsFoundByTheAddressesWithin) {
  HostRegion region;
  {
    HostMemory made(10'000);
    const HostMemory block = std::move(made);
    region = host_region_of(block.data() + 1, 9'999);
    EXPECT_NE(region.id, 0U);
    EXPECT_EQ(region.begin, block.data());
    EXPECT_EQ(region.bytes, 10'000);
    EXPECT_EQ(host_region_of(block.data() + 1, 10'000).id, 0U);
    EXPECT_EQ(host_region_of(block.data() - 1, 1).id, 0U);

    HostMappings mappings;
    block.data()[9'999] = 'x';
    const char* other = mappings.map(getpid(), region);
    ASSERT_NE(other, nullptr);
    EXPECT_EQ(other[9'999], 'x');
    EXPECT_EQ(mappings.map(getpid(), region), other);
  }
  EXPECT_EQ(host_region_of(region.begin, 1).id, 0U);
  HostMappings mappings;
  EXPECT_EQ(mappings.map(getpid(), {region.id, 99'999, region.begin, region.bytes}), nullptr);
  const HostMemory again(10'000);
  EXPECT_NE(host_region_of(again.data(), 1).id, region.id);
}

// A peer may still have it mapped, and read it after an operation that failed.
TEST(HostMemory, GivesItsPagesBackAlsoWhereItIsMapped) {
  HostMappings mappings;
  const char* other = nullptr;
  {
    const HostMemory block(1 << 20);
    std::fill_n(block.data(), block.size_bytes(), 'x');
    other = mappings.map(getpid(), host_region_of(block.data(), 1));
    ASSERT_NE(other, nullptr);
    EXPECT_EQ(other[12'345], 'x');
  }
  EXPECT_EQ(other[12'345], 0);
}

// What the kernel refuses to one rank is switched off for all of them, and said once.
TEST(HostProcesses, ExchangeOverBuffersWhereOneMayNotRead) {
  std::vector<std::string> lines;
  set_log_sink([&lines](LogLevel, std::string_view line) { lines.emplace_back(line); });
  const int port = free_port();
  Child child(port, "work", "bounce");
  const auto communicator = rank_0(port);
  exercise(*communicator, false);
  EXPECT_EQ(child.wait(), 0);
  set_log_sink({});
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("over buffers"), std::string::npos) << lines[0];
}

TEST(HostProcesses, AKilledOneIsNoticedSoon) {
  for (const char* does : {"kill", "kill-later", "exit"}) {
    const int port = free_port();
    Child child(port, does);
    const auto communicator = rank_0(port);
    const auto started = Clock::now();
    EXPECT_EQ(failure_of_barrier(*communicator),
              "barrier #2 of group world failed on rank 0 of 2: rank 1 (process " +
                  std::to_string(child.process()) + ") has died");
    EXPECT_LT(Clock::now() - started, milliseconds{2000}) << does;
    EXPECT_NE(failure_of_barrier(*communicator), "") << "the group is lost";
    EXPECT_EQ(names_in_shm(), 0U);
  }
}

TEST(HostProcesses, OneThatHangsIsATimeout) {
  const int port = free_port();
  Child child(port, "stop");
  const auto communicator = rank_0(port, milliseconds{1500});
  EXPECT_EQ(
      failure_of_barrier(*communicator),
      "barrier #2 of group world failed on rank 0 of 2: no answer from rank 1 within 1500 ms");
}

TEST(HostProcesses, OneThatAbortsFailsTheOther) {
  const int port = free_port();
  Child child(port, "abort");
  const auto communicator = rank_0(port);
  const auto started = Clock::now();
  EXPECT_EQ(failure_of_barrier(*communicator),
            "barrier #2 of group world failed on rank 0 of 2: rank 1 failed: it aborted the group");
  EXPECT_LT(Clock::now() - started, milliseconds{900});
}

// Of which calls differ, both ranks say both.
TEST(Host, NamesTheCallsThatDiffer) {
  const auto difference = [](const std::function<void(Communicator&)>& body) {
    return run_ranks(host_group(2), body)[0];
  };
  const std::string calls = difference([](Communicator& communicator) {
    if (communicator.rank() == 0) return communicator.barrier();
    (void)communicator.all_gather_bytes({});
  });
  EXPECT_NE(calls.find("rank 1 called all_gather_bytes of 0 bytes, this rank barrier; "),
            std::string::npos)
      << calls;
  const std::string cuts = difference([](Communicator& communicator) {
    const std::int64_t first = communicator.rank() == 0 ? 1 : 2;
    std::array<float, 3> in{};
    std::array<float, 6> out{};
    communicator
        .all_gather({{in.data(), out.data(), first, 3},
                     {in.data() + first, out.data() + first, 3 - first, 3}},
                    DType::kFloat32)
        .wait();
  });
  EXPECT_NE(cuts.find("rank 1 called all_gather of 3 fp32 elements in 2 pieces, this rank "
                      "all_gather of 3 fp32 elements in 2 pieces, cut otherwise; "),
            std::string::npos)
      << cuts;
}

TEST(Host, ManyBytesTravelInRounds) {
  run_ranks_ok(host_group(3), [](Communicator& communicator) {
    constexpr std::size_t kMany = 3 * kHostControlBytes / sizeof(double) + 7;
    std::vector<double> mine(kMany);
    for (std::size_t i = 0; i < kMany; ++i) {
      mine[i] = static_cast<double>(i) + communicator.rank() * 0.25;
    }
    const std::vector<double> all = communicator.all_gather_values(mine);
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(all[i], static_cast<double>(i % kMany) + static_cast<double>(i / kMany) * 0.25);
    }
  });
}

TEST(Host, TheSegmentHasNoName) {
  HostSegment made = HostSegment::create(2);
  EXPECT_EQ(names_in_shm(), 0U);
  const HostSegment other = HostSegment::attach(getpid(), made.fd(), 2);
  made.bounce(1)[17] = 'x';
  EXPECT_EQ(other.bounce(1)[17], 'x');
  made.close_fd();
  EXPECT_EQ(made.fd(), -1);
  EXPECT_THROW((void)HostSegment::attach(getpid(), 99'999, 2), IoError);
}

TEST(Host, StagingFitsWhereThePlanHasRoomForGloos) {
  for (const int size : {1, 2, 3, 4, 17, 64, 300}) {
    for (const std::int64_t elems : {0LL, 1LL, 1000LL, 1LL << 20, 1LL << 31}) {
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
        EXPECT_LE(host_staging_bytes(size, elems, dtype),
                  exchange_staging_bytes(size, elems, dtype))
            << size << " ranks, " << elems << " elements";
      }
    }
  }
  EXPECT_EQ(host_staging_bytes(2, 1LL << 31, DType::kFloat32), 256 << 10);
}

TEST(Host, ProcessStartTellsLivingFromDead) {
  EXPECT_NE(process_start(getpid()), 0U);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_EQ(process_start(child), 0U) << "its remains are there still";
  waitpid(child, nullptr, 0);
  EXPECT_EQ(process_start(child), 0U);
}

TEST(CpuCommunicator, TakesTheHostsMemoryOrWhatIsAskedFor) {
  const auto staging_with = [](const char* choice) {
    if (choice != nullptr) setenv("SLUICE_COMM", choice, 1);
    const int port = free_port();
    std::array<std::int64_t, 2> staging{};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&staging, rank, port] {
        const auto made = make_cpu_communicator(
            {.rank = rank, .size = 2, .master_port = port, .timeout = milliseconds{20'000}});
        made->barrier();
        staging[static_cast<std::size_t>(rank)] =
            made->reduce_scatter_staging_bytes(1LL << 31, DType::kFloat32);
      });
    }
    for (std::thread& thread : threads) thread.join();
    unsetenv("SLUICE_COMM");
    EXPECT_EQ(staging[0], staging[1]);
    return staging[0];
  };
  const std::int64_t gloo = exchange_staging_bytes(2, 1LL << 31, DType::kFloat32);
  const std::int64_t host = host_staging_bytes(2, 1LL << 31, DType::kFloat32);
  ASSERT_NE(gloo, host);
  EXPECT_EQ(staging_with(nullptr), host);
  EXPECT_EQ(staging_with("host"), host);
  EXPECT_EQ(staging_with("gloo"), gloo);
  setenv("SLUICE_COMM", "smoke", 1);
  EXPECT_THROW((void)make_cpu_communicator({}), ConfigError);
  unsetenv("SLUICE_COMM");
}

// A thread may have a host name of its own, if it is privileged.
TEST(CpuCommunicator, TakesGlooBetweenHosts) {
  const int port = free_port();
  std::array<std::int64_t, 2> staging{};
  std::array<std::string, 2> refusals;
  std::atomic<bool> privileged{true};
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      if (rank == 1) {
        privileged = unshare(CLONE_NEWUTS) == 0 && sethostname("elsewhere", 9) == 0;
      }
      for (++ready; ready < 2;) std::this_thread::yield();
      if (!privileged) return;
      const auto place = static_cast<std::size_t>(rank);
      CommOptions options{
          .rank = rank, .size = 2, .master_port = port, .timeout = milliseconds{20'000}};
      const auto made = make_cpu_communicator(options);
      staging[place] = made->reduce_scatter_staging_bytes(1LL << 31, DType::kFloat32);
      options.group = "pair";
      options.serves_rendezvous = false;
      try {
        (void)make_host_communicator(options);
      } catch (const CommError& error) {
        refusals[place] = error.what();
      }
      made->barrier();
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!privileged) GTEST_SKIP() << "needs the right to change a host name";
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_EQ(staging[rank], exchange_staging_bytes(2, 1LL << 31, DType::kFloat32));
    EXPECT_NE(refusals[rank].find("rank 1 cannot share memory with rank 0"), std::string::npos)
        << refusals[rank];
  }
}

}  // namespace
}  // namespace sluice
