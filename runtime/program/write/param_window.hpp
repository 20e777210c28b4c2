// Writes the gathers and releases of parameters: which groups are whole while a unit runs. Pure.
//
// A shard that lives on the host or on NVMe is first brought to its place in the gathered group.
// Where updates come at the start of a step (update_flow.hpp), a shard's first use waits for its
// own.
//
// Residents are gathered once at the start of a step (stages 1 and 2; stage 0 never gathers). The
// others by a window over the sequence of visits: while one runs, the groups that it and the next
// `prefetch_units` visits read are gathered or on their way; a group is released once it leaves the
// window.
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
  // Before use i: starts what its window wants; afterwards op reads its groups, and waits for them.
  void enter(std::size_t i, Op& op);
  // After use i: lets go what the next use's window does not want.
  void leave(std::size_t i);

 private:
  struct Gather {
    OpId op = -1;
    BufferId slot = -1;
    BufferId staging = -1;  // the shard on the host, on its way from NVMe
    bool updated = false;   // some operation has waited for the update
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
  std::vector<Gather> gathers_;  // by group
};

[[nodiscard]] std::vector<int> groups_by_first_use(const StepShape& shape);

}  // namespace sluice
