#include "parallel/mesh_comms.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "tests/parallel/backends.hpp"
#include "tests/parallel/mesh_checks.hpp"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// A thread per rank, which makes or takes its MeshComms and gives them to the body; errors by rank.
std::vector<std::string> run_mesh(int world, const std::function<MeshComms(int)>& take,
                                  const std::function<void(MeshComms&, int)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&errors, &take, &body, rank] {
      try {
        MeshComms comms = take(rank);
        body(comms, rank);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] =
            (is_secondary(error) ? "[secondary] " : "") + error_chain(error);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

std::vector<std::string> run_local_mesh(const Mesh& mesh, MeshNeeds needs,
                                        const std::function<void(MeshComms&, int)>& body) {
  std::vector<MeshComms> all = make_local_mesh_comms(mesh, needs, kPatience);
  return run_mesh(
      mesh.world(), [&](int rank) { return std::move(all[static_cast<std::size_t>(rank)]); }, body);
}

void expect_all_ok(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

class MeshCommsOf : public ::testing::TestWithParam<ParallelOptions> {
 protected:
  [[nodiscard]] static Mesh mesh() {
    const ParallelOptions& options = GetParam();
    return Mesh(options, options.tensor * options.data * options.pipeline);
  }
};

TEST_P(MeshCommsOf, GroupsAndLinksAreTheMeshs) {
  for (const MeshNeeds needs : {MeshNeeds{}, MeshNeeds{.tied = true, .wraps = true}}) {
    expect_all_ok(run_local_mesh(
        mesh(), needs, [&](MeshComms& comms, int rank) { check_mesh_comms(comms, rank, needs); }));
  }
}

// Making a group waits for its other members, as it does between processes: an order that can
// deadlock is a timeout here.
TEST_P(MeshCommsOf, GroupsAreMadeInAnOrderThatCannotDeadlock) {
  constexpr MeshNeeds kNeeds{.tied = true, .wraps = true};
  std::mutex mutex;
  std::map<std::string, Group> groups;
  std::map<std::string, std::vector<int>> members;
  const CommFactory factory = [&](const MeshGroup& of) {
    std::unique_ptr<Communicator> own;
    {
      const std::lock_guard lock(mutex);
      Group& group = groups[of.name];
      const auto size = static_cast<int>(of.world_ranks.size());
      if (group.empty()) {
        group = make_local_communicators(size, kPatience, of.name);
        members[of.name] = of.world_ranks;
      }
      EXPECT_EQ(members[of.name], of.world_ranks) << of.name << " is the name of two groups";
      EXPECT_EQ(of.kind == GroupKind::kLink,
                of.name.starts_with("activations") || of.name.starts_with("gradients"))
          << of.name;
      own = std::move(group[static_cast<std::size_t>(of.rank)]);
    }
    EXPECT_NE(own, nullptr) << "rank " << of.rank << " of " << of.name << " comes twice";
    own->barrier();
    return own;
  };
  Group worlds = make_local_communicators(mesh().world(), kPatience, "world");
  expect_all_ok(run_mesh(
      mesh().world(),
      [&](int rank) {
        return make_mesh_comms(mesh(), rank, std::move(worlds[static_cast<std::size_t>(rank)]),
                               kNeeds, factory);
      },
      [&](MeshComms& comms, int rank) { check_mesh_comms(comms, rank, kNeeds); }));
}

INSTANTIATE_TEST_SUITE_P(Meshes, MeshCommsOf,
                         ::testing::Values(ParallelOptions{.tensor = 2, .pipeline = 2, .data = 2},
                                           ParallelOptions{.tensor = 1, .pipeline = 2, .data = 3},
                                           ParallelOptions{.tensor = 3, .pipeline = 1, .data = 1},
                                           ParallelOptions{.tensor = 2, .pipeline = 2, .data = 1},
                                           ParallelOptions{.tensor = 1, .pipeline = 4, .data = 2},
                                           ParallelOptions{.tensor = 1, .pipeline = 3, .data = 1},
                                           ParallelOptions{.tensor = 1, .pipeline = 1, .data = 4},
                                           ParallelOptions{.tensor = 1, .pipeline = 1, .data = 1}),
                         [](const auto& info) {
                           return "tp" + std::to_string(info.param.tensor) + "dp" +
                                  std::to_string(info.param.data) + "pp" +
                                  std::to_string(info.param.pipeline);
                         });

// As an engine takes it.
void take_data_parallel(MeshComms comms, Communicator& data) {
  EXPECT_EQ(comms.mesh().size(MeshAxis::kData), data.size());
  EXPECT_EQ(&comms.data(), &data);
  check_mesh_comms(comms, data.rank(), {});
}

TEST(MeshComms, APlainDataParallelGroupIsAMesh) {
  for (const int size : {1, 3}) {
    run_ranks_ok(make_local_communicators(size, kPatience), [](Communicator& data) {
      take_data_parallel(data, data);
      data.barrier();  // it is not owned
    });
  }
}

TEST(MeshComms, OneDirectionNeverWaitsForAnother) {
  const Mesh mesh({.pipeline = 2, .data = 1}, 2);
  expect_all_ok(run_local_mesh(mesh, {}, [](MeshComms& comms, int rank) {
    // Both post their receives first: on one communicator these would stand before the sends.
    std::array<int, 4> got{};
    std::array<int, 4> sent{1, 2, 3, 4};
    Communicator* in = rank == 0 ? comms.links().gradients_in : comms.links().activations_in;
    Communicator* out = rank == 0 ? comms.links().activations_out : comms.links().gradients_out;
    std::vector<Ticket> tickets;
    for (int& value : got) tickets.push_back(in->receive(0, &value, sizeof value));
    for (int& value : sent) tickets.push_back(out->send(1, &value, sizeof value));
    for (const Ticket& ticket : tickets) ticket.wait();
    EXPECT_EQ(got, sent);
  }));
}

// Whatever a rank waits in: with receives in flight on several groups, it goes at once.
TEST(MeshComms, ARankThatThrowsFailsAllOthersSoon) {
  const Mesh mesh({.tensor = 2, .pipeline = 2, .data = 1}, 4);
  const auto started = Clock::now();
  std::array<std::array<char, 2>, 4> memory{};
  const auto errors = run_local_mesh(mesh, {}, [&](MeshComms& comms, int rank) {
    std::array<char, 2>& bytes = memory[static_cast<std::size_t>(rank)];
    const PipelineLinks& links = comms.links();
    if (rank == 3) {
      const Ticket early = links.activations_in->receive(0, bytes.data(), 1);
      throw Error("the cause");
    }
    // Groups that end after the links do, which drain.
    if (rank != 2) return comms.world().barrier();
    (void)comms.tensor().all_gather_values({});
  });
  EXPECT_EQ(errors[3], "the cause");
  for (const std::size_t r : {0U, 1U, 2U}) {
    EXPECT_TRUE(errors[r].starts_with("[secondary] ")) << r << ": " << errors[r];
  }
  EXPECT_LT(Clock::now() - started, milliseconds{2500}) << "it waited for what nobody sends";
}

TEST(MeshComms, AbortEndsAllGroups) {
  const Mesh mesh({.pipeline = 2, .data = 2}, 4);
  const auto errors = run_local_mesh(mesh, {.tied = true}, [](MeshComms& comms, int rank) {
    comms.world().barrier();
    if (rank == 1) comms.abort();
    char byte = 0;
    const PipelineLinks& links = comms.links();
    Communicator& link = rank < 2 ? *links.activations_out : *links.gradients_out;
    if (rank == 1) {
      for (Communicator* group : {&comms.world(), &comms.data(), comms.tied(), &link}) {
        EXPECT_THROW((void)group->all_gather_values({}), CommError);
      }
    }
    if (rank == 0) comms.data().barrier();         // with 1
    if (rank == 2) comms.world().barrier();        // with all
    if (rank == 3) link.send(1, &byte, 1).wait();  // to 1
  });
  EXPECT_EQ(errors[1], "");
  for (const std::size_t r : {0U, 2U, 3U}) {
    EXPECT_TRUE(errors[r].starts_with("[secondary] ")) << r << ": " << errors[r];
    EXPECT_NE(errors[r].find("aborted"), std::string::npos) << errors[r];
  }
}

TEST(MeshComms, TheWorldHasToBeTheMeshs) {
  const Mesh mesh({.pipeline = 2}, 4);
  auto three = make_local_communicators(3, kPatience);
  EXPECT_THROW((void)make_mesh_comms(mesh, 0, std::move(three[0]), {}, {}), Error);
}

}  // namespace
}  // namespace sluice
