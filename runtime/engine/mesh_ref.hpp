// An engine's communicators: of a mesh, or of one plain data-parallel group, which becomes a mesh
// of one axis. The communicators outlive the reference. Not thread-safe.
#pragma once

#include <memory>

#include "parallel/mesh_comms.hpp"

namespace sluice {

class MeshRef {
 public:
  MeshRef(MeshComms& comms) : comms_(&comms) {}
  MeshRef(Communicator& data) : own_(std::make_unique<MeshComms>(data)), comms_(own_.get()) {}

  [[nodiscard]] MeshComms& operator*() const { return *comms_; }
  [[nodiscard]] MeshComms* operator->() const { return comms_; }
  // The world is one data-parallel group.
  [[nodiscard]] bool is_plain() const { return comms_->world().size() == comms_->data().size(); }

 private:
  std::unique_ptr<MeshComms> own_;
  MeshComms* comms_;
};

}  // namespace sluice
