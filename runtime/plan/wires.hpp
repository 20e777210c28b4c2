// The wire of each mesh axis: links inside a node, or the network between nodes.
// Ranks fill nodes in turn, so tensor-parallel ranks are neighbours (parallel/mesh.hpp). Pure.
#pragma once

#include <array>

#include "base/index.hpp"
#include "parallel/mesh.hpp"
#include "runtime/plan/machine_profile.hpp"

namespace sluice {

// Messages of an axis go from each rank to the next rank of the group. Tensor and data messages go
// around a ring; pipeline messages go up and down, and around with virtual stages.
struct AxisWire {
  int ranks = 1;
  double crossing = 0;  // share of these messages that leave a node
  int leaving = 0;      // most messages that leave one node at once
  double bps = 0;       // of a rank; if messages cross, the rank's share of the node's network
};
using MeshWires = std::array<AxisWire, 3>;  // by MeshAxis

[[nodiscard]] MeshWires wires_of(const MachineProfile& machine, const ParallelOptions& parallel,
                                 int world);

[[nodiscard]] inline const AxisWire& wire_of(const MeshWires& wires, MeshAxis axis) {
  return nth(wires, axis);
}

}  // namespace sluice
