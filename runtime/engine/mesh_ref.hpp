// The communicators of a rank as an engine is given them: a mesh's, or a plain data-parallel
// group's, of which it makes a mesh. Neither is owned; they have to outlive this. Not thread-safe.
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
  // Of other data-parallel groups there are none: the world is one of them.
  [[nodiscard]] bool is_plain() const { return comms_->world().size() == comms_->data().size(); }

 private:
  std::unique_ptr<MeshComms> own_;
  MeshComms* comms_;
};

}  // namespace sluice
