// The communicators that one rank of the mesh talks over.
//
// Thread-safety: of each Communicator: one thread at a time may call it; different ones may be
// called by different threads. abort() may be called from any thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/communicator.hpp"
#include "parallel/mesh.hpp"

namespace sluice {

// Groups of two, each used in one direction: its rank 0 sends, its rank 1 receives. So neither the
// order of the two directions nor that of activations and gradients has to be the same on both
// sides. Null where there is no such neighbour: the first stage gets activations and the last one
// sends them with MeshNeeds::wraps alone; gradients run the same links the other way.
struct PipelineLinks {
  Communicator* activations_in = nullptr;   // from the stage before: rank 1
  Communicator* activations_out = nullptr;  // to the stage after: rank 0
  Communicator* gradients_in = nullptr;     // from the stage after: rank 1
  Communicator* gradients_out = nullptr;    // to the stage before: rank 0
};

// What a run needs besides the axes and the links between neighbours: the same on all ranks.
struct MeshNeeds {
  bool tied = false;   // tied embeddings: first and last stage share a parameter
  bool wraps = false;  // virtual stages: the last stage sends to the first
};

// Makes one group. Collective among `world_ranks` (this process's is world_ranks[rank_in_group]);
// returns when all have come. Not asked for groups of one rank.
using CommFactory = std::function<std::unique_ptr<Communicator>(
    const std::string& group, const std::vector<int>& world_ranks, int rank_in_group)>;

// Movable. Ends its own groups in the reverse order of their making, the world last; while an
// exception unwinds they are aborted first, all at once, so that the peers fail soon in whichever
// they wait.
class MeshComms {
 public:
  // Mesh (1, n, 1) of a plain data-parallel group, which is not owned and has to outlive this.
  MeshComms(Communicator& data);
  MeshComms(MeshComms&& other) noexcept;
  MeshComms& operator=(MeshComms&& other) noexcept;
  ~MeshComms();

  [[nodiscard]] const Mesh& mesh() const;
  [[nodiscard]] const MeshCoordinates& at() const;  // of this rank

  [[nodiscard]] Communicator& world() const;
  // Of an axis: rank in the group = coordinate. The world's where the axis is all of the mesh.
  [[nodiscard]] Communicator& data() const;
  [[nodiscard]] Communicator& tensor() const;
  // First (rank 0) and last stage (rank 1) at this (tp, dp), a group of its own; null on stages
  // between them, with one stage, or where it was not asked for.
  [[nodiscard]] Communicator* tied() const;
  [[nodiscard]] const PipelineLinks& links() const;

  void abort() noexcept;  // all of them, those not owned too

 private:
  struct State;
  explicit MeshComms(std::unique_ptr<State> state);
  friend MeshComms make_mesh_comms(const Mesh&, int, std::unique_ptr<Communicator>, MeshNeeds,
                                   const CommFactory&);
  friend std::vector<MeshComms> make_local_mesh_comms(const Mesh&, MeshNeeds,
                                                      std::chrono::milliseconds);
  std::unique_ptr<State> state_;
};

// Collective over the world: all ranks call it with the same mesh and needs. Returns when all
// groups of all ranks are made. Throws what the factory throws. It cannot deadlock: every rank goes
// through one list of all groups in the same order, and the members of the first group that is not
// made yet have nothing before it left to wait for.
[[nodiscard]] MeshComms make_mesh_comms(const Mesh& mesh, int world_rank,
                                        std::unique_ptr<Communicator> world, MeshNeeds needs,
                                        const CommFactory& factory);

// Ranks are threads of this process: element i is for rank i's thread.
[[nodiscard]] std::vector<MeshComms> make_local_mesh_comms(
    const Mesh& mesh, MeshNeeds needs = {},
    std::chrono::milliseconds timeout = std::chrono::milliseconds{600'000});

// What ranks that are processes talk over.
enum class CommKind {
  kCpu,   // make_cpu_communicator: each group by where its ranks are
  kHost,  // make_host_communicator
  kGloo,
  kNccl,
};
// Makes the world of make_mesh_comms: `options` as they are.
[[nodiscard]] std::unique_ptr<Communicator> make_process_world(const CommOptions& options,
                                                               CommKind kind);
// Groups that meet at the world's rendezvous over one connection, with its timeout. `world`: the
// options that the world's communicator was made with; it has to live while groups are made. A
// factory is for one rank: its copies share the connection.
[[nodiscard]] CommFactory make_process_factory(const CommOptions& world, CommKind kind);

}  // namespace sluice
