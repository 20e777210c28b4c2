// Of an image: what a commit must find on NVMe, and who must find one.
#include <algorithm>

#include "tests/runtime/program/tier_play.hpp"

namespace sluice {

namespace {

// In committed_: what this rank has committed, and what it has told all ranks.
std::size_t cell_of(bool told) { return told ? 1 : 0; }

}  // namespace

// Reads the place of every chunk that a run would go on from. A meeting tells all ranks.
Task TierPlay::commit(const Op& op) {
  const std::size_t cell = cell_of(op.kind == OpKind::kMeet);
  Task task;
  task.writes = {{committed_, cell, cell + 1}};
  if (op.kind == OpKind::kMeet) {
    task.work = [this](const std::vector<Cells>&) {
      return std::vector<Cells>{{thing(Thing::kCommitted, 0, 0, version_)}};
    };
    return task;
  }
  for (int c = 0; c < static_cast<int>(program_->chunks.size()); ++c) {
    const int g = program_->chunks[static_cast<std::size_t>(c)].group;
    task.reads.push_back(states_at(c, false));
    if (nvme(parameter_tier(shape_, g))) task.reads.push_back(params_at(c, false));
  }
  task.work = [this](const std::vector<Cells>& seen) {
    for (const Cells& cells : seen) {
      for (const Cell cell : cells) {
        expect(version_in(cell) == static_cast<Cell>(version_), "commits another version");
      }
    }
    return std::vector<Cells>{{thing(Thing::kCommitted, 0, 0, version_)}};
  };
  return task;
}

// What overwrites a step's states, on this rank or, told by this one's sums, on another.
bool TierPlay::needs_commit(const Op& op) const {
  if (!program_->image || kind_ != PlayKind::kTrain) return false;
  if (op.kind == OpKind::kReduceGrads) {
    return std::any_of(program_->ops.begin(), program_->ops.end(),
                       [](const Op& other) { return other.speculative; });
  }
  const bool writes = op.kind == OpKind::kWriteStates || op.kind == OpKind::kWriteParams;
  return meets_all(op.kind) || (writes && op.speculative && outcome_.speculates);
}

// A tensor-parallel rank's commit is known by the meeting alone.
void TierPlay::find_committed(Task& task, const Op& op) {
  const std::size_t cell = cell_of(op.speculative && shape_.tensor > 1);
  task.reads.push_back({committed_, cell, cell + 1});
  task.work = [this, work = std::move(task.work)](const std::vector<Cells>& seen) {
    expect_all(seen.back(), thing(Thing::kCommitted, 0, 0, version_),
               "comes before the commit of the step before");
    return work({seen.begin(), seen.end() - 1});
  };
}

}  // namespace sluice
