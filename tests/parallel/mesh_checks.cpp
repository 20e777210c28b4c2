#include "tests/parallel/mesh_checks.hpp"

#include <array>
#include <vector>

#include "base/error.hpp"

namespace sluice {
namespace {

void require(bool condition, int world_rank, const std::string& what) {
  if (!condition) throw Error("world rank " + std::to_string(world_rank) + ": " + what);
}

void check_members(Communicator& communicator, int world_rank, const std::vector<int>& expected,
                   int rank_in_group, const std::string& name) {
  require(communicator.rank() == rank_in_group, world_rank, "its rank in " + name);
  const double mine = world_rank;
  const std::vector<double> members = communicator.all_gather_values({&mine, 1});
  require(members == std::vector<double>(expected.begin(), expected.end()), world_rank,
          "the members of " + name);
}

// What a rank sends over a link says who it is and which link it means.
std::array<int, 3> token(int world_rank, bool gradients) { return {world_rank, gradients, 0x5a}; }

struct Pair {
  Communicator* in;
  Communicator* out;
  int from;  // stage that sends to this one, -1: none
  int to;    // stage that this one sends to
};

void check_links(const MeshComms& comms, int world_rank, bool wraps) {
  const int stages = comms.mesh().size(MeshAxis::kPipeline);
  const int at = comms.at().pp;
  const auto stage = [&](int s) {
    if (stages == 1 || (!wraps && (s < 0 || s >= stages))) return -1;
    return (s + stages) % stages;
  };
  const PipelineLinks& links = comms.links();
  const std::array<Pair, 2> pairs{
      Pair{links.activations_in, links.activations_out, stage(at - 1), stage(at + 1)},
      Pair{links.gradients_in, links.gradients_out, stage(at + 1), stage(at - 1)}};
  std::array<std::array<int, 3>, 2> sent{};
  std::array<std::array<int, 3>, 2> got{};
  std::vector<Ticket> tickets;
  for (const std::size_t i : {0U, 1U}) {
    const Pair& pair = pairs[i];
    const bool gradients = i == 1;
    require((pair.out != nullptr) == (pair.to >= 0), world_rank, "where it has a link out");
    require((pair.in != nullptr) == (pair.from >= 0), world_rank, "where it has a link in");
    sent[i] = token(world_rank, gradients);
    constexpr std::int64_t kBytes = sizeof sent[i];
    if (pair.out != nullptr) {
      require(pair.out->size() == 2 && pair.out->rank() == 0, world_rank, "it is the sender");
      tickets.push_back(pair.out->send(1, sent[i].data(), kBytes));
    }
    if (pair.in != nullptr) {
      require(pair.in->size() == 2 && pair.in->rank() == 1, world_rank, "it is the receiver");
      tickets.push_back(pair.in->receive(0, got[i].data(), kBytes));
    }
  }
  for (const Ticket& ticket : tickets) ticket.wait();
  for (const std::size_t i : {0U, 1U}) {
    if (pairs[i].from < 0) continue;
    MeshCoordinates sender = comms.at();
    sender.pp = pairs[i].from;
    require(got[i] == token(comms.mesh().world_rank(sender), i == 1), world_rank,
            "what it was sent over link " + std::to_string(i));
  }
}

}  // namespace

void check_mesh_comms(const MeshComms& comms, int world_rank, MeshNeeds needs) {
  const Mesh& mesh = comms.mesh();
  require(comms.at() == mesh.coordinates(world_rank), world_rank, "its coordinates");
  std::vector<int> everyone;
  for (int r = 0; r < mesh.world(); ++r) everyone.push_back(r);
  check_members(comms.world(), world_rank, everyone, world_rank, "the world");
  check_members(comms.tensor(), world_rank, mesh.group(MeshAxis::kTensor, world_rank),
                comms.at().tp, "the tensor group");
  check_members(comms.data(), world_rank, mesh.group(MeshAxis::kData, world_rank), comms.at().dp,
                "the data group");
  for (const MeshAxis axis : {MeshAxis::kTensor, MeshAxis::kData}) {
    const Communicator& group = axis == MeshAxis::kTensor ? comms.tensor() : comms.data();
    require((&group == &comms.world()) == (mesh.size(axis) == mesh.world()), world_rank,
            "whether its " + name_of(axis) + " group is the world's");
  }
  const int last = mesh.size(MeshAxis::kPipeline) - 1;
  const bool ties = needs.tied && last > 0 && (comms.at().pp == 0 || comms.at().pp == last);
  require((comms.tied() != nullptr) == ties, world_rank, "whether it has a tied group");
  if (ties) {
    const std::vector<int> stages = mesh.group(MeshAxis::kPipeline, world_rank);
    check_members(*comms.tied(), world_rank, {stages.front(), stages.back()},
                  comms.at().pp == 0 ? 0 : 1, "the tied group");
  }
  check_links(comms, world_rank, needs.wraps);
}

}  // namespace sluice
