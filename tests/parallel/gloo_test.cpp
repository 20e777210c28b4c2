// Rendezvous and processes: what groups of threads do not have.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "base/error.hpp"
#include "base/job_secret.hpp"
#include "parallel/comm/socket.hpp"
#include "tests/free_port.hpp"
#include "tests/parallel/backends.hpp"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

std::string refusal(const CommOptions& options) {
  try {
    (void)make_gloo_communicator(options);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// An IPv4 address of an interface that is up and is not the loopback; empty: there is none.
std::string network_address() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return "";
  std::string text;
  for (const ifaddrs* at = list; at != nullptr && text.empty(); at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET) continue;
    if ((at->ifa_flags & IFF_UP) == 0 || (at->ifa_flags & IFF_LOOPBACK) != 0) continue;
    text = inet_ntoa(reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr);
  }
  freeifaddrs(list);
  return text;
}

std::set<std::string> thread_ids() {
  std::set<std::string> ids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    ids.insert(entry.path().filename().string());
  }
  return ids;
}

// From the kernel's view of the thread.
bool blocks_sigpipe(const std::string& task) {
  std::ifstream status("/proc/" + task + "/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("SigBlk:")) continue;
    return (std::stoull(line.substr(7), nullptr, 16) >> (SIGPIPE - 1) & 1) == 1;
  }
  return false;
}

TEST(Gloo, SaysThatThePortIsInUse) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  const int port = ntohs(address.sin_port);
  EXPECT_EQ(refusal({.rank = 0, .size = 2, .master_port = port, .timeout = milliseconds{2000}}),
            "port " + std::to_string(port) + " on 127.0.0.1 is in use; set MASTER_PORT or free it");
  close(fd);
}

TEST(Gloo, SaysThatNobodyServes) {
  const std::string port = std::to_string(free_port());
  EXPECT_EQ(
      refusal({.rank = 1, .size = 2, .master_port = std::stoi(port), .timeout = milliseconds{300}}),
      "group world, rank 1 of 2: nobody serves the rendezvous at 127.0.0.1:" + port +
          " within 300 ms; check that rank 0 runs, and that MASTER_ADDR and MASTER_PORT are "
          "rank 0's address and port");
}

// Started with these set, the test program is rank 1 of a group and nothing else.
constexpr char kSecretChildPort[] = "SLUICE_TEST_SECRET_CHILD_PORT";

TEST(Gloo, SecretChildOnly) {
  const char* port = std::getenv(kSecretChildPort);
  if (port == nullptr) GTEST_SKIP() << "not a child";
  const std::string text = refusal(
      {.rank = 1, .size = 2, .master_port = std::stoi(port), .timeout = milliseconds{20'000}});
  // Whether rank 0 has gone already decides which of the two.
  _exit(text.find("secret") != std::string::npos || text.find("rendezvous") != std::string::npos
            ? 0
            : 1);
}

// What rank 0 hears where rank 1 has that secret, and rank 0 this one; nullptr: none.
std::string refusal_with_secrets(const char* own, const char* other) {
  const int port = free_port();
  const auto set = [](const char* secret) {
    if (secret == nullptr) {
      unsetenv(kJobSecretVariable);
    } else {
      setenv(kJobSecretVariable, secret, 1);
    }
  };
  const pid_t child = fork();
  if (child == 0) {
    set(other);
    setenv(kSecretChildPort, std::to_string(port).c_str(), 1);
    execl("/proc/self/exe", "gloo_child", "--gtest_filter=Gloo.SecretChildOnly", nullptr);
    _exit(127);
  }
  set(own);
  std::string text =
      refusal({.rank = 0, .size = 2, .master_port = port, .timeout = milliseconds{20'000}});
  unsetenv(kJobSecretVariable);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == (text.empty() ? 1 : 0)) << status;
  return text;
}

TEST(Gloo, RanksWithoutTheJobsSecretAreRefused) {
  const char* secret = "0123456789abcdef0123456789abcdef";
  const char* said =
      "the entry world/here/1 of the rendezvous was not written with this job's "
      "secret; give all ranks of the job the same SLUICE_JOB_SECRET";
  EXPECT_EQ(refusal_with_secrets(secret, "fedcba9876543210fedcba9876543210").find(said), 0U);
  EXPECT_EQ(refusal_with_secrets(secret, nullptr).find(said), 0U);
  EXPECT_EQ(refusal_with_secrets(nullptr, secret).find(said), 0U);
  EXPECT_EQ(refusal_with_secrets(secret, secret), "");
}

// Not on all interfaces: the kernel says where the socket listens.
TEST(Gloo, TheRendezvousIsBoundToItsAddress) {
  for (const char* host : {"127.0.0.1", "127.0.0.2"}) {
    const Descriptor bound = bind_port(host, 0);
    sockaddr_in address{};
    socklen_t length = sizeof address;
    ASSERT_EQ(getsockname(bound.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    EXPECT_EQ(address.sin_addr.s_addr, inet_addr(host));
  }
  const std::string network = network_address();
  if (network.empty()) GTEST_SKIP() << "this machine has no address but the loopback's";
  const Descriptor bound = bind_port(network, 0);
  sockaddr_in address{};
  socklen_t length = sizeof address;
  ASSERT_EQ(getsockname(bound.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  EXPECT_EQ(address.sin_addr.s_addr, inet_addr(network.c_str()));
}

TEST(Gloo, SaysWhoDidNotCome) {
  const int port = free_port();
  std::array<std::string, 4> texts;
  std::vector<std::thread> threads;
  for (const int rank : {0, 2}) {
    threads.emplace_back([&texts, rank, port] {
      texts[static_cast<std::size_t>(rank)] = refusal({.rank = rank,
                                                       .size = 4,
                                                       .group = "dp",
                                                       .master_port = port,
                                                       .timeout = milliseconds{1000}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(texts[0],
            "group dp, rank 0 of 4: ranks 1, 3 did not come to the rendezvous at 127.0.0.1:" +
                std::to_string(port) + " within 1000 ms");
  EXPECT_NE(texts[2], "");
}

// A rank with a GPU meets its peers in NCCL's control group first.
TEST(Gloo, SaysThatAnotherRankHasAnotherDevice) {
  const int port = free_port();
  std::array<std::string, 2> texts;
  std::vector<std::thread> threads;
  for (const int rank : {0, 1}) {
    threads.emplace_back([&texts, rank, port] {
      texts[static_cast<std::size_t>(rank)] = refusal({.rank = rank,
                                                       .size = 2,
                                                       .group = rank == 0 ? "dp" : "dp.control",
                                                       .master_port = port,
                                                       .timeout = milliseconds{60000}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(texts[0].substr(0, texts[0].find(':')),
            "rank 1 communicates over NCCL, and rank 0 communicates without a GPU");
  EXPECT_EQ(texts[1].substr(0, texts[1].find(':')),
            "rank 0 communicates without a GPU, and rank 1 communicates over NCCL");
}

TEST(Gloo, SaysThatTheHostIsUnknown) {
  const std::string text = refusal({.rank = 0,
                                    .size = 2,
                                    .master_addr = "no-such-host.invalid",
                                    .master_port = 1,
                                    .timeout = milliseconds{300}});
  EXPECT_NE(text.find("the rendezvous host no-such-host.invalid is not known"), std::string::npos)
      << text;
}

// The groups of a mesh share the world's server: here two pairs, and the pairs across.
TEST(Gloo, GroupsOfOneJobShareARendezvous) {
  const int port = free_port();
  std::vector<std::thread> threads;
  for (int world = 0; world < 4; ++world) {
    threads.emplace_back([world, port] {
      try {
        CommOptions options{
            .rank = world, .size = 4, .master_port = port, .timeout = milliseconds{20'000}};
        const auto all = make_gloo_communicator(options);
        options.serves_rendezvous = false;
        options.size = 2;
        options.rank = world % 2;
        options.group = "row" + std::to_string(world / 2);
        const auto row = make_gloo_communicator(options);
        options.rank = world / 2;
        options.group = "column" + std::to_string(world % 2);
        const auto column = make_gloo_communicator(options);
        const double mine = world;
        const std::vector<double> in_row = row->all_gather_values({&mine, 1});
        const std::vector<double> in_column = column->all_gather_values({&mine, 1});
        const int first = world / 2 * 2;
        EXPECT_EQ(in_row, (std::vector<double>{double(first), double(first + 1)}));
        EXPECT_EQ(in_column, (std::vector<double>{double(world % 2), double(world % 2 + 2)}));
        all->barrier();
      } catch (const std::exception& error) {
        ADD_FAILURE() << error_chain(error);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A write to a peer that has gone must not kill this process: no thread that Gloo, the store or we
// started may be open to SIGPIPE, and the caller's own mask stays as it was.
TEST(Gloo, NoThreadOfACommunicatorIsOpenToSigpipe) {
  const std::set<std::string> before = thread_ids();
  const int port = free_port();
  Group group(2);
  std::vector<std::thread> makers;
  for (int rank = 0; rank < 2; ++rank) {
    makers.emplace_back([&group, rank, port] {
      group[static_cast<std::size_t>(rank)] = make_gloo_communicator(
          {.rank = rank, .size = 2, .master_port = port, .timeout = milliseconds{20'000}});
      EXPECT_FALSE(blocks_sigpipe("thread-self"));
    });
  }
  for (std::thread& maker : makers) maker.join();
  int fresh = 0;
  for (const std::string& id : thread_ids()) {
    if (before.contains(id)) continue;
    ++fresh;
    EXPECT_TRUE(blocks_sigpipe("self/task/" + id)) << "thread " << id;
  }
  EXPECT_GE(fresh, 4) << "two queues and two Gloo loops at least";
}

// Started with this variable set, the test program is rank 1 of a group and nothing else.
constexpr char kGlooChildPort[] = "SLUICE_TEST_GLOO_CHILD_PORT";

int child_main(int port) {
  const auto communicator = make_gloo_communicator(
      {.rank = 1, .size = 2, .master_port = port, .timeout = milliseconds{20'000}});
  communicator->barrier();
  raise(SIGKILL);
  return 1;
}

TEST(Gloo, AKilledProcessFailsItsPeersSoon) {
  const int port = free_port();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // A fresh image: threads of libtorch do not survive a fork.
    setenv(kGlooChildPort, std::to_string(port).c_str(), 1);
    execl("/proc/self/exe", "gloo_child", "--gtest_filter=Gloo.ChildOnly", nullptr);
    _exit(127);
  }
  const auto communicator = make_gloo_communicator(
      {.rank = 0, .size = 2, .master_port = port, .timeout = milliseconds{60'000}});
  communicator->barrier();
  const auto started = Clock::now();
  std::vector<float> in(1 << 20);
  std::vector<float> out(in.size());
  std::vector<char> staging(static_cast<std::size_t>(
      communicator->reduce_scatter_staging_bytes(1 << 19, DType::kFloat32)));
  try {
    communicator
        ->reduce_scatter(
            {{.input = in.data(), .output = out.data(), .elems = 1 << 19, .stride = 1 << 19}},
            DType::kFloat32, staging.data())
        .wait();
    ADD_FAILURE() << "nobody was there to answer";
  } catch (const CommError& error) {
    EXPECT_TRUE(error.is_secondary());
    EXPECT_EQ(
        std::string(error.what())
            .find(
                "reduce_scatter #3 of group world failed on rank 0 of 2: the connection to rank 1 "
                "broke"),
        0U)
        << error.what();
  }
  EXPECT_LT(Clock::now() - started, milliseconds{5000});
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST(Gloo, ChildOnly) {
  if (const char* port = std::getenv(kGlooChildPort)) child_main(std::stoi(port));
}

}  // namespace
}  // namespace sluice
