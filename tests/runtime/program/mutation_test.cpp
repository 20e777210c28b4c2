// The checker is checked: sound programs are broken in one place, and it has to notice.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "runtime/program/check/program_check.hpp"
#include "runtime/program/write/step_writer.hpp"
#include "tests/runtime/program/replay.hpp"
#include "tests/runtime/program/shapes.hpp"

namespace sluice {
namespace {

struct Subject {
  std::string name;
  StepShape shape;
  Program program;
  bool training;
};

void for_each_subject(const std::function<void(const Subject&)>& visit) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const int micro_batches : {1, 3}) {
      const StepShape shape = passing(make_shape({.stage = stage,
                                                  .micro_batches = micro_batches,
                                                  .layer_major = micro_batches > 1,
                                                  .reduce_every = ReduceEvery::kStep,
                                                  .bucket_bytes = 3000,
                                                  .tied = true,
                                                  .blocks = 3}),
                                      /*updates_in_backward=*/true);
      visit({"updates in the backward, stage " + std::to_string(stage), shape,
             write_train_step(shape), true});
    }
  }
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool tied : {false, true}) {
      for (const bool recompute : {false, true}) {
        for (const std::int64_t bucket : {3000L, 60'000L, -3000L, -60'000L}) {
          ShapeChoice choice{.stage = stage, .dp = 2, .micro_batches = 2, .recompute = recompute};
          choice.bucket_bytes = std::abs(bucket);
          choice.layer_major = bucket < 0;
          choice.tied = tied;
          choice.persist = tied;
          choice.prefetch_units = recompute ? 2 : 1;
          const StepShape shape = make_shape(choice);
          visit({name_of(choice), shape, write_train_step(shape), true});
          visit({name_of(choice) + ", eval", shape, write_eval_step(shape), false});
        }
      }
    }
  }
}

std::size_t at(int id) { return static_cast<std::size_t>(id); }

// Operations o known to be over before operation i runs because it, or one before it, waited.
std::vector<OpId> comm_frontier(const Program& program) {
  std::vector<OpId> frontier;
  OpId over = -1;
  for (const Op& op : program.ops) {
    for (const OpId w : op.waits) {
      if (program.ops[at(w)].lane == Lane::kComm) over = std::max(over, w);
    }
    frontier.push_back(over);
  }
  return frontier;
}

TEST(FindFault, NoticesEveryWaitThatIsDropped) {
  for_each_subject([](const Subject& subject) {
    const std::vector<OpId> frontier = comm_frontier(subject.program);
    for (std::size_t i = 0; i < subject.program.ops.size(); ++i) {
      for (std::size_t w = 0; w < subject.program.ops[i].waits.size(); ++w) {
        Program broken = subject.program;
        broken.ops[i].waits.erase(broken.ops[i].waits.begin() + static_cast<std::ptrdiff_t>(w));
        // A lane is first in, first out: a wait for an older operation of it adds nothing.
        const bool needed = comm_frontier(broken)[i] < frontier[i];
        ASSERT_EQ(find_fault(broken).empty(), !needed)
            << subject.name << ": operation " << i << " without its wait " << w;
        ASSERT_EQ(replay(broken, subject.shape, subject.training).fault.empty(), !needed);
      }
    }
  });
}

TEST(FindFault, NoticesEveryBirthAndDeathThatIsDroppedOrDoubled) {
  for_each_subject([](const Subject& subject) {
    for (std::size_t i = 0; i < subject.program.ops.size(); ++i) {
      for (const auto list : {&Op::live, &Op::dead_before, &Op::dead_after}) {
        for (std::size_t b = 0; b < (subject.program.ops[i].*list).size(); ++b) {
          Program dropped = subject.program;
          auto& ids = dropped.ops[i].*list;
          ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(b));
          ASSERT_NE(find_fault(dropped), "") << subject.name << ": operation " << i;
          Program doubled = subject.program;
          (doubled.ops[i].*list).push_back((doubled.ops[i].*list)[b]);
          ASSERT_NE(find_fault(doubled), "") << subject.name << ": operation " << i;
          Program late = subject.program;
          late.ops.back().dead_after.push_back((subject.program.ops[i].*list)[b]);
          ASSERT_NE(find_fault(late), "") << subject.name << ": freed again at the end";
        }
      }
    }
  });
}

TEST(FindFault, NoticesSlotsThatOverlap) {
  int overlaps = 0;
  for_each_subject([&](const Subject& subject) {
    std::vector<BufferId> alive;
    for (const Op& op : subject.program.ops) {
      for (const BufferId b : op.dead_before) std::erase(alive, b);
      for (const BufferId b : op.live) {
        if (!subject.program.buffers[at(b)].in_arena) continue;
        for (const BufferId other : alive) {
          Program broken = subject.program;
          const Buffer& there = broken.buffers[at(other)];
          broken.buffers[at(b)].arena_offset = there.arena_offset + there.bytes - 1;
          broken.arena_bytes *= 2;
          ASSERT_NE(find_fault(broken), "") << subject.name;
          ++overlaps;
        }
        Program outside = subject.program;
        outside.buffers[at(b)].arena_offset =
            outside.arena_bytes - outside.buffers[at(b)].bytes + 1;
        ASSERT_NE(find_fault(outside), "") << subject.name;
        alive.push_back(b);
      }
      for (const BufferId b : op.dead_after) std::erase(alive, b);
    }
  });
  EXPECT_GT(overlaps, 100);
}

// `order[i]` is the operation that comes i-th; waits are renamed.
Program reordered(const Program& program, const std::vector<int>& order) {
  Program result = program;
  std::vector<int> place(program.ops.size(), static_cast<int>(program.ops.size()));
  for (std::size_t i = 0; i < order.size(); ++i) place[at(order[i])] = static_cast<int>(i);
  result.ops.clear();
  for (const int o : order) {
    result.ops.push_back(program.ops[at(o)]);
    for (OpId& w : result.ops.back().waits) w = place[at(w)];
  }
  return result;
}

std::vector<int> in_order(std::size_t n) {
  std::vector<int> order(n);
  for (std::size_t i = 0; i < n; ++i) order[i] = static_cast<int>(i);
  return order;
}

// Some neighbours may change places (two gathers, say). Whatever the replay finds wrong, the
// checker, which knows less, has to find too.
TEST(FindFault, NoticesEverySwapOfNeighboursThatMatters) {
  int wrong = 0;
  for_each_subject([&](const Subject& subject) {
    for (std::size_t i = 0; i + 1 < subject.program.ops.size(); ++i) {
      std::vector<int> order = in_order(subject.program.ops.size());
      std::swap(order[i], order[i + 1]);
      // Two units at two micro-batches: another order, and a good one.
      const Op& one = subject.program.ops[i];
      const Op& other = subject.program.ops[i + 1];
      if (other.unit >= 0 && one.unit != other.unit && one.micro_batch > other.micro_batch) {
        continue;
      }
      const Program broken = reordered(subject.program, order);
      const std::string fault = replay(broken, subject.shape, subject.training).fault;
      if (fault.empty()) continue;
      ++wrong;
      ASSERT_NE(find_fault(broken), "") << subject.name << ": operations " << i << ", " << i + 1
                                        << " swapped; replay says " << fault;
    }
  });
  EXPECT_GT(wrong, 500);
}

TEST(FindFault, NoticesEveryOperationThatIsMissing) {
  for_each_subject([](const Subject& subject) {
    for (std::size_t i = 0; i < subject.program.ops.size(); ++i) {
      const OpKind kind = subject.program.ops[i].kind;
      // That all groups are updated is for the replay to say: a program knows no groups but those
      // it names.
      if (kind == OpKind::kUpdate) continue;
      std::vector<int> order = in_order(subject.program.ops.size());
      order.erase(order.begin() + static_cast<std::ptrdiff_t>(i));
      Program broken = reordered(subject.program, order);
      for (Op& op : broken.ops) {
        std::erase(op.waits, static_cast<OpId>(subject.program.ops.size()));
      }
      ASSERT_NE(find_fault(broken), "")
          << subject.name << ": operation " << i << " (" << name_of(kind) << ") missing";
    }
  });
}

TEST(FindFault, NoticesEveryComputeOperationThatRunsTwice) {
  for_each_subject([](const Subject& subject) {
    for (std::size_t i = 0; i < subject.program.ops.size(); ++i) {
      if (subject.program.ops[i].unit < 0) continue;
      Program broken = subject.program;
      Op again = broken.ops[i];
      again.live.clear();
      again.dead_before.clear();
      again.dead_after.clear();
      again.waits.clear();
      for (Op& op : broken.ops) {
        for (OpId& w : op.waits) w += w > static_cast<OpId>(i) ? 1 : 0;
      }
      broken.ops.insert(broken.ops.begin() + static_cast<std::ptrdiff_t>(i) + 1, again);
      ASSERT_NE(find_fault(broken), "") << subject.name << ": operation " << i << " twice";
    }
  });
}

TEST(FindFault, NoticesLostGradientsOfARankAlone) {
  const Program sound = write_train_step(make_shape({.stage = 1, .dp = 1, .blocks = 2}));
  ASSERT_TRUE(sound.in_place);
  ASSERT_EQ(find_fault(sound), "");
  const auto is_last = [](const Op& op) { return op.kind == OpKind::kBackward && op.unit == 0; };
  const auto last = std::find_if(sound.ops.begin(), sound.ops.end(), is_last) - sound.ops.begin();
  Program broken = sound;
  broken.ops[at(static_cast<int>(last))].opens.clear();
  EXPECT_NE(find_fault(broken), "") << "adds to the gradients of the step before";
  broken = sound;
  broken.buckets = {{{.group = 0, .begin = 0, .elems = 64}}};
  broken.ops.insert(broken.ops.begin() + last + 1,
                    {.kind = OpKind::kReduceGrads, .lane = Lane::kComm, .bucket = 0});
  EXPECT_NE(find_fault(broken), "") << "reduces what is reduced";
  broken = sound;
  broken.in_place = false;
  EXPECT_NE(find_fault(broken), "") << "sends no gradients";
}

TEST(FindFault, NoticesNamesOfThingsThatAreNotThere) {
  const Program sound = write_train_step(make_shape({.stage = 3}));
  for (const auto list : {&Op::live, &Op::dead_before, &Op::dead_after}) {
    for (const BufferId id : {-1, static_cast<BufferId>(sound.buffers.size())}) {
      Program broken = sound;
      (broken.ops[3].*list).push_back(id);
      EXPECT_NE(find_fault(broken), "");
    }
  }
  for (const OpId id : {-1, 5, 1000}) {
    Program broken = sound;
    broken.ops[5].waits.push_back(id);
    EXPECT_NE(find_fault(broken), "");
  }
  Program broken = sound;
  const auto reduce = std::find_if(broken.ops.begin(), broken.ops.end(),
                                   [](const Op& op) { return op.kind == OpKind::kReduceGrads; });
  reduce->bucket = static_cast<int>(broken.buckets.size());
  EXPECT_NE(find_fault(broken), "");
}

}  // namespace
}  // namespace sluice
