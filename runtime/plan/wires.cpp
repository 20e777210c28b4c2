#include "runtime/plan/wires.hpp"

#include <algorithm>
#include <vector>

#include "base/index.hpp"

namespace sluice {
namespace {

int next_of(const Mesh& mesh, MeshAxis axis, int rank) {
  MeshCoordinates at = mesh.coordinates(rank);
  int& place = axis == MeshAxis::kTensor ? at.tp : axis == MeshAxis::kData ? at.dp : at.pp;
  place = (place + 1) % mesh.size(axis);
  return mesh.world_rank(at);
}

AxisWire count_hops(const Mesh& mesh, MeshAxis axis, int local, bool around) {
  AxisWire wire;
  wire.ranks = mesh.size(axis);
  if (wire.ranks == 1) return wire;
  const int world = mesh.world();
  std::vector<int> leaving(static_cast<std::size_t>((world - 1) / local + 1), 0);
  int hops = 0;
  int crossing = 0;
  for (int rank = 0; rank < world; ++rank) {
    if (mesh.rank_in_group(axis, rank) + 1 == wire.ranks && !around) continue;
    ++hops;
    const int from = rank / local;
    if (next_of(mesh, axis, rank) / local == from) continue;
    ++crossing;
    ++nth(leaving, from);
  }
  wire.crossing = static_cast<double>(crossing) / hops;
  wire.leaving = *std::max_element(leaving.begin(), leaving.end());
  return wire;
}

}  // namespace

MeshWires wires_of(const MachineProfile& machine, const ParallelOptions& parallel, int world) {
  ParallelOptions sizes = parallel;
  sizes.data = 0;
  const Mesh mesh(sizes, world);
  const int local = ranks_of_node(machine, world);
  MeshWires wires;
  for (const MeshAxis axis : kMeshAxes) {
    const bool around = axis != MeshAxis::kPipeline || parallel.virtual_stages > 1;
    AxisWire& wire = nth(wires, axis);
    wire = count_hops(mesh, axis, local, around);
    wire.bps = machine.comm_bps;
    if (wire.leaving > 0 && machine.network_bps > 0) {
      wire.bps = std::min(wire.bps, machine.network_bps / wire.leaving);
    }
  }
  return wires;
}

}  // namespace sluice
