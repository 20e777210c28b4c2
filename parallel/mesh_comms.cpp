#include "parallel/mesh_comms.hpp"

#include <exception>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/index.hpp"
#include "parallel/comm/nccl_link.hpp"

namespace sluice {
namespace {

std::unique_ptr<Communicator> alone() { return std::move(make_local_communicators(1).front()); }

Mesh data_mesh(int size) { return Mesh({.data = size}, size); }

// ".tp1.dp0": distinguishes the groups along the pipeline.
std::string across(const MeshCoordinates& at) {
  return ".tp" + std::to_string(at.tp) + ".dp" + std::to_string(at.dp);
}

}  // namespace

struct MeshComms::State {
  State(const Mesh& of, int world_rank) : mesh(of), at(mesh.coordinates(world_rank)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (std::uncaught_exceptions() > exceptions) abort_owned();
    while (!owned.empty()) owned.pop_back();
  }

  void abort_owned() noexcept {
    for (const auto& communicator : owned) communicator->abort();
  }

  Communicator* own(std::unique_ptr<Communicator> communicator) {
    owned.push_back(std::move(communicator));
    return owned.back().get();
  }

  // Makes the group if this rank is a member; returns null otherwise.
  Communicator* make(MeshGroup group, const CommFactory& factory) {
    for (std::size_t i = 0; i < group.world_ranks.size(); ++i) {
      if (group.world_ranks[i] != mesh.world_rank(at)) continue;
      group.rank = static_cast<int>(i);
      return own(factory(group));
    }
    return nullptr;
  }

  Communicator* axis(MeshAxis along, const CommFactory& factory) {
    if (mesh.size(along) == mesh.world()) return world;
    const int rank = mesh.world_rank(at);
    return make({.name = mesh.group_name(along, rank), .world_ranks = mesh.group(along, rank)},
                factory);
  }

  // Two stages at this rank's (tp, dp).
  [[nodiscard]] MeshGroup pair(const std::string& what, int from, int to, GroupKind kind) const {
    MeshCoordinates sender = at;
    MeshCoordinates receiver = at;
    sender.pp = from;
    receiver.pp = to;
    return {.name = what + ".pp" + std::to_string(from) + "-" + std::to_string(to) + across(at),
            .world_ranks = {mesh.world_rank(sender), mesh.world_rank(receiver)},
            .kind = kind};
  }

  // Activations go from stage s to stage s + 1, gradients from s + 1 to s.
  void make_links(bool wraps, const CommFactory& factory) {
    const int stages = mesh.size(MeshAxis::kPipeline);
    if (stages == 1) return;
    for (int s = 0; s < (wraps ? stages : stages - 1); ++s) {
      const int next = (s + 1) % stages;
      Communicator* forward = make(pair("activations", s, next, GroupKind::kLink), factory);
      Communicator* backward = make(pair("gradients", next, s, GroupKind::kLink), factory);
      if (at.pp == s) {
        links.activations_out = forward;
        links.gradients_in = backward;
      } else if (at.pp == next) {
        links.activations_in = forward;
        links.gradients_out = backward;
      }
    }
  }

  // The order is the same on all ranks (make_mesh_comms).
  void make_groups(MeshNeeds needs, const CommFactory& factory) {
    tensor = axis(MeshAxis::kTensor, factory);
    data = axis(MeshAxis::kData, factory);
    const int stages = mesh.size(MeshAxis::kPipeline);
    // The tied group is never the world's Communicator, even if the world has only these two ranks.
    // The two stages reduce the shared gradient at different points of their programs, and all
    // operations of one Communicator need the same order on both.
    if (needs.tied && stages > 1) {
      tied = make(pair("tied", 0, stages - 1, GroupKind::kCollective), factory);
    }
    make_links(needs.wraps, factory);
  }

  const Mesh mesh;
  const MeshCoordinates at;
  const int exceptions = std::uncaught_exceptions();
  std::vector<std::unique_ptr<Communicator>> owned;  // in creation order; an owned world is first
  Communicator* world = nullptr;
  Communicator* data = nullptr;
  Communicator* tensor = nullptr;
  Communicator* tied = nullptr;
  PipelineLinks links;
};

MeshComms::MeshComms(std::unique_ptr<State> state) : state_(std::move(state)) {}
MeshComms::MeshComms(MeshComms&& other) noexcept = default;
MeshComms& MeshComms::operator=(MeshComms&& other) noexcept = default;
MeshComms::~MeshComms() = default;

MeshComms::MeshComms(Communicator& data)
    : state_(std::make_unique<State>(data_mesh(data.size()), data.rank())) {
  state_->world = &data;
  state_->data = &data;
  state_->tensor = data.size() == 1 ? &data : state_->own(alone());
}

const Mesh& MeshComms::mesh() const { return state_->mesh; }
const MeshCoordinates& MeshComms::at() const { return state_->at; }
Communicator& MeshComms::world() const { return *state_->world; }
Communicator& MeshComms::data() const { return *state_->data; }
Communicator& MeshComms::tensor() const { return *state_->tensor; }
Communicator* MeshComms::tied() const { return state_->tied; }
const PipelineLinks& MeshComms::links() const { return state_->links; }

void MeshComms::abort() noexcept {
  state_->world->abort();  // the world may not be owned
  state_->abort_owned();
}

MeshComms make_mesh_comms(const Mesh& mesh, int world_rank, std::unique_ptr<Communicator> world,
                          MeshNeeds needs, const CommFactory& factory) {
  check(world != nullptr && world->size() == mesh.world() && world->rank() == world_rank,
        "the world's communicator is of the mesh's size and of this rank");
  auto state = std::make_unique<MeshComms::State>(mesh, world_rank);
  state->world = state->own(std::move(world));
  state->make_groups(needs, factory);
  // No rank may end, and take the rendezvous with it, while other ranks still make groups.
  state->world->barrier();
  return MeshComms(std::move(state));
}

std::vector<MeshComms> make_local_mesh_comms(const Mesh& mesh, MeshNeeds needs,
                                             std::chrono::milliseconds timeout) {
  std::map<std::string, std::vector<std::unique_ptr<Communicator>>> groups;
  const CommFactory factory = [&](const MeshGroup& of) {
    auto& group = groups[of.name];
    if (group.empty()) {
      group = make_local_communicators(static_cast<int>(of.world_ranks.size()), timeout, of.name);
    }
    return std::move(nth(group, of.rank));
  };
  auto worlds = make_local_communicators(mesh.world(), timeout, "world");
  std::vector<MeshComms> all;
  for (int rank = 0; rank < mesh.world(); ++rank) {
    auto state = std::make_unique<MeshComms::State>(mesh, rank);
    state->world = state->own(std::move(nth(worlds, rank)));
    state->make_groups(needs, factory);
    all.push_back(MeshComms(std::move(state)));
  }
  return all;
}

std::unique_ptr<Communicator> make_process_world(const CommOptions& options, CommKind kind) {
  switch (kind) {
    case CommKind::kHost:
      return make_host_communicator(options);
    case CommKind::kGloo:
      return make_gloo_communicator(options);
    case CommKind::kNccl:
      return make_nccl_communicator(options);
    case CommKind::kCpu:
      break;
  }
  return make_cpu_communicator(options);
}

CommFactory make_process_factory(const CommOptions& world, CommKind kind) {
  // The first group connects. Shared by the copies of the factory.
  auto rendezvous = std::make_shared<std::shared_ptr<Rendezvous>>();
  return [world, kind, rendezvous](const MeshGroup& group) {
    const std::size_t size = group.world_ranks.size();
    if (size == 1 && kind != CommKind::kNccl) return alone();
    if (!*rendezvous && size > 1) *rendezvous = connect_rendezvous(world);
    CommOptions options = world;
    options.rendezvous = *rendezvous;
    options.group = group.name;
    options.rank = group.rank;
    options.size = static_cast<int>(size);
    options.serves_rendezvous = false;
    const bool nccl_link = kind == CommKind::kNccl && group.kind == GroupKind::kLink;
    return nccl_link ? make_nccl_link(options) : make_process_world(options, kind);
  };
}

}  // namespace sluice
