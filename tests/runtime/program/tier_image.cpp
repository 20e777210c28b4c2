// Of an image: what a commit must find on NVMe, and who must find one.
#include <algorithm>

#include "tests/runtime/program/tier_play.hpp"

namespace sluice {

// Reads the place of every chunk that a run would go on from.
Task TierPlay::commit() {
  Task task;
  for (int c = 0; c < static_cast<int>(program_->chunks.size()); ++c) {
    const int g = program_->chunks[static_cast<std::size_t>(c)].group;
    task.reads.push_back(states_at(c, false));
    if (nvme(parameter_tier(shape_, g))) task.reads.push_back(params_at(c, false));
  }
  task.writes = {whole(committed_)};
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
  const bool early = std::any_of(program_->ops.begin(), program_->ops.end(),
                                 [](const Op& other) { return other.speculative; });
  const bool writes = op.kind == OpKind::kWriteStates || op.kind == OpKind::kWriteParams;
  return op.kind == OpKind::kNormAndScale || (op.kind == OpKind::kReduceGrads && early) ||
         (writes && op.speculative && outcome_.speculates);
}

void TierPlay::find_committed(Task& task) {
  task.reads.push_back(whole(committed_));
  task.work = [this, work = std::move(task.work)](const std::vector<Cells>& seen) {
    expect_all(seen.back(), thing(Thing::kCommitted, 0, 0, version_),
               "comes before the commit of the step before");
    return work({seen.begin(), seen.end() - 1});
  };
}

}  // namespace sluice
