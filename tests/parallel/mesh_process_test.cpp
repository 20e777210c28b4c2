// The communicators of a mesh whose ranks are processes.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "tests/free_port.hpp"
#include "tests/parallel/backends.hpp"
#include "tests/parallel/mesh_checks.hpp"

namespace sluice {
namespace {

// Started with these set, the test program is one rank of the mesh and nothing else.
constexpr char kPort[] = "SLUICE_TEST_MESH_PORT";
constexpr char kRank[] = "SLUICE_TEST_MESH_RANK";
constexpr char kKind[] = "SLUICE_TEST_MESH_KIND";

constexpr MeshNeeds kNeeds{.tied = true, .wraps = true};

void run_rank(int rank, int port, CommKind kind) {
  const Mesh mesh({.tensor = 2, .pipeline = 2}, 4);
  const CommOptions options{.rank = rank,
                            .size = mesh.world(),
                            .master_port = port,
                            .timeout = std::chrono::milliseconds{60'000}};
  const MeshComms comms = make_mesh_comms(mesh, rank, make_process_world(options, kind), kNeeds,
                                          make_process_factory(options, kind));
  check_mesh_comms(comms, rank, kNeeds);
  comms.world().barrier();
}

TEST(MeshProcess, ChildOnly) {
  const char* port = std::getenv(kPort);
  if (port == nullptr) return;
  try {
    run_rank(std::stoi(std::getenv(kRank)), std::stoi(port),
             static_cast<CommKind>(std::stoi(std::getenv(kKind))));
    _exit(0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "child: %s\n", error_chain(error).c_str());
    _exit(1);
  }
}

// What is left of it goes with this object.
class RankProcess {
 public:
  RankProcess(int rank, int port, CommKind kind) : process_(fork()) {
    if (process_ != 0) return;
    setenv(kPort, std::to_string(port).c_str(), 1);
    setenv(kRank, std::to_string(rank).c_str(), 1);
    setenv(kKind, std::to_string(static_cast<int>(kind)).c_str(), 1);
    execl("/proc/self/exe", "mesh_child", "--gtest_filter=MeshProcess.ChildOnly", nullptr);
    _exit(127);
  }
  RankProcess(RankProcess&& other) noexcept : process_(std::exchange(other.process_, -1)) {}
  RankProcess& operator=(RankProcess&&) = delete;
  ~RankProcess() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  int wait() {
    int status = 0;
    waitpid(std::exchange(process_, -1), &status, 0);
    return status;
  }

 private:
  pid_t process_;
};

TEST(MeshProcess, GroupsAndLinksAreTheMeshs) {
  for (const CommKind kind : {CommKind::kGloo, CommKind::kHost, CommKind::kCpu}) {
    const int port = free_port();
    std::vector<RankProcess> others;
    for (const int rank : {1, 2, 3}) others.emplace_back(rank, port, kind);
    try {
      run_rank(0, port, kind);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error_chain(error);
    }
    for (RankProcess& process : others) EXPECT_EQ(process.wait(), 0);
  }
}

}  // namespace
}  // namespace sluice
