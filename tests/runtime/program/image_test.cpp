// States on NVMe as an image: where a step commits, what must come before and after, and the room.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/program/check/program_check.hpp"
#include "runtime/program/model/memory_model.hpp"
#include "runtime/program/model/time_model.hpp"
#include "runtime/program/write/step_states.hpp"
#include "runtime/program/write/step_writer.hpp"
#include "tests/runtime/program/shapes.hpp"
#include "tests/runtime/program/stages.hpp"
#include "tests/runtime/program/tier_simulation.hpp"

namespace sluice {
namespace {

ShapeChoice image_choice(bool speculate) {
  ShapeChoice choice = early_gradients(speculate);
  choice.placement.image = true;
  choice.placement.grain_bytes = 4096;
  return choice;
}

std::vector<ShapeChoice> choices() {
  std::vector<ShapeChoice> all;
  for (int i = 0; i < kVariants; ++i) all.push_back(vary(image_choice(i % 3 != 0), i));
  return all;
}

OpId find(const Program& program, OpKind kind) {
  const auto op = std::find_if(program.ops.begin(), program.ops.end(),
                               [kind](const Op& other) { return other.kind == kind; });
  return op == program.ops.end() ? -1 : static_cast<OpId>(op - program.ops.begin());
}

bool is_write(const Op& op) {
  return op.kind == OpKind::kWriteStates || op.kind == OpKind::kWriteParams;
}

bool waits_for(const Program& program, OpId op, OpId other) {
  const std::vector<OpId>& waits = program.ops[static_cast<std::size_t>(op)].waits;
  return std::find(waits.begin(), waits.end(), other) != waits.end();
}

TEST(Image, StandsBetweenDeferredUpdatesAndWhatOverwritesTheStepBefore) {
  for (const ShapeChoice& choice : choices()) {
    SCOPED_TRACE(name_of(choice));
    const Program program = write_train_step(make_shape(choice));
    const OpId commit = find(program, OpKind::kCommit);
    ASSERT_GE(commit, 0);
    int early = 0;
    for (OpId i = 0; i < static_cast<OpId>(program.ops.size()); ++i) {
      const Op& op = program.ops[static_cast<std::size_t>(i)];
      if (op.kind == OpKind::kCommit) {
        EXPECT_EQ(i, commit);
      }
      if (!is_write(op)) continue;
      early += op.speculative ? 1 : 0;
      EXPECT_TRUE(op.speculative ? waits_for(program, i, commit) : waits_for(program, commit, i));
    }
    EXPECT_EQ(early > 0, choice.placement.speculate);
    const OpId reduction = find(program, OpKind::kReduceGrads);
    EXPECT_EQ(waits_for(program, reduction, commit), choice.placement.speculate);
    EXPECT_TRUE(waits_for(program, find(program, OpKind::kNormAndScale), commit));
    EXPECT_EQ(find(write_update_step(make_shape(choice)), OpKind::kCommit), -1);
  }
}

TEST(Image, IsSoundAndPlaysInAnyOrder) {
  for (const ShapeChoice& choice : choices()) {
    const StepShape shape = make_shape(choice);
    const Program train = write_train_step(shape);
    ASSERT_EQ(find_fault(train), "") << name_of(choice);
    ASSERT_EQ(find_fault(write_update_step(shape)), "") << name_of(choice);
    ASSERT_EQ(find_fault(write_eval_step(shape)), "") << name_of(choice);
    for (std::uint64_t seed = 0; seed < 5; seed += kCaseStride) {
      ASSERT_EQ(play_steps(train, shape, seed), "") << name_of(choice) << ", seed " << seed;
    }
  }
}

// A stage without a loss head commits behind its first backward: whatever the schedule, all of its
// chunks have been updated for a forward by then.
TEST(Image, OfAPipelineStandsBehindTheLossHeadOrTheFirstBackward) {
  int stages = 0;
  std::uint64_t seed = 0;
  for (const PipelineRun& run : all_runs(3, 3, 2)) {
    ShapeChoice choice = image_choice(false);
    choice.tied = run.micro_batches == 2;
    choice.stage = 1 + 2 * (run.stages % 2);
    if (choice.stage == 3) choice.placement.parameters = Tier::kNvme;
    for (const StepShape& shape : make_stages(choice, run)) {
      SCOPED_TRACE(name_of(run) + "stage " + std::to_string(shape.pipeline.stage));
      const Program program = write_train_step(shape);
      const OpId commit = find(program, OpKind::kCommit);
      const OpId before = find(program, shape.ends_model() ? OpKind::kLossHead : OpKind::kBackward);
      ASSERT_GT(commit, before);
      for (OpId i = before + 1; i < commit; ++i) {
        const OpKind kind = program.ops[static_cast<std::size_t>(i)].kind;
        EXPECT_TRUE(is_send(kind)) << name_of(kind);
      }
      EXPECT_TRUE(waits_for(program, find(program, OpKind::kNormAndScale), commit));
      EXPECT_EQ(find_fault(program), "");
      EXPECT_EQ(play_steps(program, shape, seed++), "");
      ++stages;
    }
  }
  EXPECT_GT(stages, 50);
}

// No reduction tells tensor-parallel ranks of each other's commits: a meeting of all ranks does,
// right before the first backward, and nothing is overwritten before it.
TEST(Image, TensorParallelRanksMeetBeforeAnythingIsOverwritten) {
  int early = 0;
  int lost = 0;  // plays in which a step was overwritten that a rank may have had alone
  std::uint64_t seed = 0;
  for (const ShapeChoice& choice : choices()) {
    SCOPED_TRACE(name_of(choice));
    StepShape shape = make_shape(choice);
    shape.tensor = 2;
    for (UnitShape& unit : shape.units) {
      unit.exchanges.forward = unit.exchanges.backward = {{.bytes = 1000}};
    }
    Program sound = write_train_step(shape);
    ASSERT_EQ(find_fault(sound), "");
    if (++seed % kCaseStride == 0) {
      EXPECT_EQ(play_steps(sound, shape, seed), "");
    }
    const OpId commit = find(sound, OpKind::kCommit);
    OpId meeting = -1;
    for (OpId i = 0; i < static_cast<OpId>(sound.ops.size()); ++i) {
      const Op& op = sound.ops[static_cast<std::size_t>(i)];
      if (op.kind == OpKind::kMeet) {
        EXPECT_EQ(std::exchange(meeting, i), -1) << "they meet once";
        EXPECT_EQ(i + 1, find(sound, OpKind::kBackward));
        EXPECT_EQ(op.waits, std::vector<OpId>{commit});
      }
      if (!is_write(op) || !op.speculative) continue;
      EXPECT_TRUE(waits_for(sound, i, meeting));
      ++early;
    }
    EXPECT_EQ(meeting >= 0, choice.placement.speculate);
    if (meeting < 0) continue;
    const bool any = std::any_of(sound.ops.begin(), sound.ops.end(),
                                 [](const Op& op) { return op.speculative; });
    Op& meet = sound.ops[static_cast<std::size_t>(meeting)];
    Program broken = sound;
    broken.ops[static_cast<std::size_t>(meeting)].waits.clear();
    if (!choice.layer_major) {  // reductions before the first backward may have waited as well
      EXPECT_NE(find_fault(broken), "");
    }
    broken = sound;
    broken.ops.push_back(meet);
    EXPECT_NE(find_fault(broken), "");
    meet.kind = OpKind::kRelease;
    EXPECT_EQ(find_fault(sound) != "", any);
    lost += any && play_steps(sound, shape, seed) != "" ? 1 : 0;
  }
  EXPECT_GT(early, 100);
  EXPECT_GT(lost, 5);
}

// What keeps a commit in its place is noticed where it is missing, one by one.
TEST(Image, EveryWaitOfAndForACommitIsNeeded) {
  int needed = 0;
  for (const ShapeChoice& choice : choices()) {
    SCOPED_TRACE(name_of(choice));
    const Program sound = write_train_step(make_shape(choice));
    const OpId commit = find(sound, OpKind::kCommit);
    const auto at = static_cast<std::size_t>(commit);
    Program broken = sound;
    broken.ops[at].waits.clear();
    // Where parameters are the states, the loss head may have read what all writes have left.
    if (choice.placement.parameters != Tier::kNvme || choice.dtype != DType::kFloat32) {
      EXPECT_NE(find_fault(broken), "");
    }
    for (std::size_t i = 0; i < sound.ops.size(); ++i) {
      if (!waits_for(sound, static_cast<OpId>(i), commit)) continue;
      const OpKind kind = sound.ops[i].kind;
      if (kind == OpKind::kNormAndScale && choice.placement.speculate) continue;  // by reductions
      if (is_write(sound.ops[i])) continue;                                       // likewise
      broken = sound;
      std::erase(broken.ops[i].waits, commit);
      EXPECT_NE(find_fault(broken), "") << "operation " << i;
      ++needed;
    }
    broken = sound;
    for (Op& op : broken.ops) {
      if (op.kind == OpKind::kReduceGrads) std::erase(op.waits, commit);
      if (op.speculative) std::erase(op.waits, commit);
    }
    EXPECT_EQ(find_fault(broken) != "", choice.placement.speculate);
  }
  EXPECT_GT(needed, 100);
}

// Whatever the simulation can make fail, the checker must have found: waits dropped one by one
// around the commit, of which some are implied by others.
TEST(Image, CheckerFindsWhatAnAdversaryCanUse) {
  int dropped = 0;
  int faults = 0;
  for (const ShapeChoice& choice : choices()) {
    const StepShape shape = make_shape(choice);
    const Program sound = write_train_step(shape);
    const OpId commit = find(sound, OpKind::kCommit);
    for (std::size_t i = 0; i < sound.ops.size(); ++i) {
      const bool own = static_cast<OpId>(i) == commit;
      for (std::size_t w = 0; w < sound.ops[i].waits.size(); ++w) {
        if (!own && sound.ops[i].waits[w] != commit) continue;
        if (++dropped % 61 != 0) continue;
        Program broken = sound;
        std::vector<OpId>& waits = broken.ops[i].waits;
        waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(w));
        if (find_fault(broken) != "") continue;
        for (std::uint64_t seed = 0; seed < 5; seed += kCaseStride) {
          ASSERT_EQ(play_steps(broken, shape, seed), "")
              << name_of(choice) << ": operation " << i << " without its wait " << w;
        }
      }
    }
    if (choice.micro_batches > 1) continue;
    Program early = sound;
    early.ops[static_cast<std::size_t>(commit)].waits.clear();
    for (std::uint64_t seed = 0; seed < 5; ++seed)
      faults += play_steps(early, shape, seed) != "" ? 1 : 0;
  }
  EXPECT_GT(dropped, 1000);
  EXPECT_GT(faults, 50);
}

TEST(Image, IsCommittedOnce) {
  const Program sound = write_train_step(make_shape(image_choice(true)));
  const auto commit = static_cast<std::size_t>(find(sound, OpKind::kCommit));
  Program broken = sound;
  broken.ops[commit] = {.kind = OpKind::kRelease};
  EXPECT_NE(find_fault(broken), "");
  broken = sound;
  Op again = sound.ops[commit];
  again.waits = {static_cast<OpId>(commit)};
  broken.ops.push_back(again);
  EXPECT_NE(find_fault(broken), "");
  broken = sound;
  broken.image = false;
  EXPECT_NE(find_fault(broken), "");
  broken = sound;
  broken.chunks.front().second = false;
  EXPECT_NE(find_fault(broken), "");
}

TEST(Image, TakesEachChunkTwiceAndTwoRecords) {
  const auto page = [](std::int64_t bytes) { return (bytes + 4095) / 4096 * 4096; };
  for (const bool speculate : {false, true}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      for (const Tier params : {Tier::kDevice, Tier::kNvme}) {
        ShapeChoice choice = image_choice(speculate);
        choice.dtype = dtype;
        choice.placement.parameters = params;
        const StepShape shape = make_shape(choice);
        const Program program = write_train_step(shape);
        std::int64_t second = 0;
        std::int64_t grains = 0;
        for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
          std::vector<std::int64_t> arrays(3, 4 * owned_elems(shape, g));
          if (dtype == DType::kBFloat16 && parameter_tier(shape, g) == Tier::kNvme) {
            arrays.push_back(2 * owned_elems(shape, g));
          }
          for (const std::int64_t bytes : arrays) {
            second += page(bytes);
            grains += page(bytes) / 4096;
          }
        }
        choice.placement.image = false;
        choice.placement.speculate = false;
        const Program plain = write_train_step(make_shape(choice));
        const std::int64_t record = image_bytes(shape, program.chunks);
        EXPECT_GE(record, 8 * grains);
        EXPECT_LT(record, 8 * grains + kImageStateBytes + 8192);
        EXPECT_EQ(add_up(program, Tier::kNvme).peak(),
                  add_up(plain, Tier::kNvme).peak() + second + 2 * record);
        EXPECT_EQ(add_up(program, Tier::kHost).peak(), add_up(plain, Tier::kHost).peak());
        if (speculate) continue;
        EXPECT_EQ(traffic_of(program).disk_written, traffic_of(plain).disk_written + record);
        EXPECT_EQ(traffic_of(program).disk_read, traffic_of(plain).disk_read);
      }
    }
  }
}

TEST(Image, NeedsStatesOnNvme) {
  ShapeChoice choice = image_choice(false);
  choice.placement.optimizer = Tier::kHost;
  const Program program = write_train_step(make_shape(choice));
  EXPECT_FALSE(program.image);
  EXPECT_EQ(find(program, OpKind::kCommit), -1);
}

}  // namespace
}  // namespace sluice
