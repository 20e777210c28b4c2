// What the communicators of a mesh have to be, as one rank sees them: for threads and processes.
#pragma once

#include "parallel/mesh_comms.hpp"

namespace sluice {

// Collective: all ranks call it. Throws Error where a group has other members than the mesh says,
// or a link is missing, too many, or carries another stage's bytes.
void check_mesh_comms(const MeshComms& comms, int world_rank, MeshNeeds needs);

}  // namespace sluice
