// Writes the gathers and releases of parameters. Pure.
//
// An off-device shard is first copied to its place in the gathered group's slot. If updates run at
// the start of a step (update_flow.hpp), the first use of a shard waits for the shard's update.
//
// Resident groups are gathered once, at the start of a step (stages 1 and 2). In stage 0 nothing is
// gathered; a rank alone gathers no resident group. Other groups are gathered by a window over the
// sequence of visits. While a visit runs, the window holds the groups that it and the next
// `prefetch_units` visits read: each is gathered or being gathered. A group that leaves the window
// is released. A lone rank that rounds master weights gathers a group right before the first use
// that reads it: its window holds one visit.
#pragma once

#include <span>
#include <vector>

#include "runtime/program/step_shape.hpp"
#include "runtime/program/write/program_builder.hpp"
#include "runtime/program/write/update_flow.hpp"

namespace sluice {

class ParamWindow {
 public:
  ParamWindow(ProgramBuilder& builder, const StepShape& shape, std::span<const Use> uses,
              UpdateFlow& updates);

  void gather_residents();
  // Called before use i. Starts the gathers of its window, and makes `op` wait for its own groups.
  void enter(std::size_t i, Op& op);
  // Called after use i. Releases its groups that are not in the next use's window.
  void leave(std::size_t i);

 private:
  struct Gather {
    OpId op = -1;
    BufferId slot = -1;
    BufferId staging = -1;  // holds the shard on the host between NVMe and device
    bool updated = false;   // an operation waits for the update
    bool live = false;
    bool waited = false;
  };

  [[nodiscard]] std::vector<int> params_of(const Use& use) const;
  void gather(int g);
  void fetch_shard(int g, Op& gather);
  [[nodiscard]] std::vector<OpId> update_of(int g);

  ProgramBuilder& builder_;
  const StepShape& shape_;
  const std::span<const Use> uses_;
  UpdateFlow& updates_;
  const int ahead_;               // visits
  std::vector<Gather> gathered_;  // by group
};

[[nodiscard]] std::vector<int> groups_by_first_use(const StepShape& shape);

}  // namespace sluice
