// The communicators of one rank of the mesh.
//
// Threads: one thread at a time may call a Communicator. Different threads may call different
// Communicators at the same time. Any thread may call abort().
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/communicator.hpp"
#include "parallel/mesh.hpp"

namespace sluice {

// Links between neighbouring pipeline stages. A link is a group of two ranks with one direction:
// rank 0 sends and rank 1 receives. One direction per link means that the two stages need not agree
// on the order of their sends and receives, or of activations and gradients. A link is null without
// a neighbour. Only MeshNeeds::wraps connects the last stage to the first.
struct PipelineLinks {
  Communicator* activations_in = nullptr;   // from the previous stage; this rank is rank 1
  Communicator* activations_out = nullptr;  // to the next stage; this rank is rank 0
  Communicator* gradients_in = nullptr;     // from the next stage; this rank is rank 1
  Communicator* gradients_out = nullptr;    // to the previous stage; this rank is rank 0
};

// Groups that a run needs besides the axes and the links. Equal on all ranks.
struct MeshNeeds {
  bool tied = false;   // tied embeddings: first and last stage share a parameter
  bool wraps = false;  // virtual stages: the last stage sends to the first
};

enum class GroupKind {
  kCollective,
  kLink,  // rank 0 sends and rank 1 receives (PipelineLinks)
};

// A group of the mesh. This process is world_ranks[rank].
struct MeshGroup {
  std::string name;
  std::vector<int> world_ranks;
  int rank = 0;
  GroupKind kind = GroupKind::kCollective;
};

// Makes one group. Collective over the group's ranks. Returns when all members have joined. A group
// of one rank must accept the same kind of memory (host or device) as the larger groups.
using CommFactory = std::function<std::unique_ptr<Communicator>(const MeshGroup& group)>;

// Movable. The destructor ends the owned groups in reverse order, the world last. During stack
// unwinding it first aborts all of them, so that peers fail soon in whichever group they wait.
class MeshComms {
 public:
  // The mesh (1, n, 1) over a data-parallel group. Does not own `data`, which must outlive this.
  MeshComms(Communicator& data);
  MeshComms(MeshComms&& other) noexcept;
  MeshComms& operator=(MeshComms&& other) noexcept;
  ~MeshComms();

  [[nodiscard]] const Mesh& mesh() const;
  [[nodiscard]] const MeshCoordinates& at() const;  // coordinates of this rank

  [[nodiscard]] Communicator& world() const;
  // The group along an axis; the rank in the group is the coordinate. This is the world's
  // Communicator if the axis spans the whole mesh.
  [[nodiscard]] Communicator& data() const;
  [[nodiscard]] Communicator& tensor() const;
  // A group of the first stage (rank 0) and the last stage (rank 1) at this (tp, dp). Null on other
  // stages, with one stage, or without MeshNeeds::tied.
  [[nodiscard]] Communicator* tied() const;
  [[nodiscard]] const PipelineLinks& links() const;

  void abort() noexcept;  // aborts all groups, the one that is not owned too

 private:
  struct State;
  explicit MeshComms(std::unique_ptr<State> state);
  friend MeshComms make_mesh_comms(const Mesh&, int, std::unique_ptr<Communicator>, MeshNeeds,
                                   const CommFactory&);
  friend std::vector<MeshComms> make_local_mesh_comms(const Mesh&, MeshNeeds,
                                                      std::chrono::milliseconds);
  std::unique_ptr<State> state_;
};

// Collective over the world, with equal mesh and needs on all ranks. Returns when all groups of all
// ranks are made. Throws the factory's errors.
// No deadlock is possible: every rank walks one list of all groups in the same order. No member of
// the first group that is not yet made waits for an earlier group.
[[nodiscard]] MeshComms make_mesh_comms(const Mesh& mesh, int world_rank,
                                        std::unique_ptr<Communicator> world, MeshNeeds needs,
                                        const CommFactory& factory);

// For ranks that are threads of this process. Element i belongs to the thread of rank i.
[[nodiscard]] std::vector<MeshComms> make_local_mesh_comms(
    const Mesh& mesh, MeshNeeds needs = {},
    std::chrono::milliseconds timeout = std::chrono::milliseconds{600'000});

// Transport between ranks that are processes.
enum class CommKind {
  kCpu,   // make_cpu_communicator: shared memory or Gloo, chosen for each group
  kHost,  // make_host_communicator
  kGloo,
  kNccl,
};
// Makes the `world` argument of make_mesh_comms.
[[nodiscard]] std::unique_ptr<Communicator> make_process_world(const CommOptions& options,
                                                               CommKind kind);
// A factory whose groups join at the world's rendezvous, over one connection and with the world's
// timeout. `world`: the options of the world's communicator, which must live while groups are made.
// One factory serves one rank; copies of the factory share the connection.
[[nodiscard]] CommFactory make_process_factory(const CommOptions& world, CommKind kind);

}  // namespace sluice
