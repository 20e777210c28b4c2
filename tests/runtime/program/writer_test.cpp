#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "runtime/program/check/program_check.hpp"
#include "runtime/program/model/memory_model.hpp"
#include "runtime/program/write/step_writer.hpp"
#include "tests/runtime/program/replay.hpp"
#include "tests/runtime/program/shapes.hpp"

namespace sluice {
namespace {

TEST(StepWriter, EveryProgramIsSoundByBothOpinions) {
  for_each_choice([](const ShapeChoice& choice) {
    const StepShape shape = make_shape(choice);
    for (const bool training : {true, false}) {
      const Program program = training ? write_train_step(shape) : write_eval_step(shape);
      ASSERT_EQ(find_fault(program), "") << name_of(choice);
      const ReplayResult result = replay(program, shape, training);
      ASSERT_EQ(result.fault, "") << name_of(choice);
      ASSERT_EQ(result.waste, "") << name_of(choice);
    }
  });
}

// Loss, vote and learned targets, and the sums of a rank: of all shards where it has whole groups.
TEST(StepWriter, TheNormsExchangeHasThreeNumbersBesideTheSums) {
  for (const int stage : {0, 1}) {
    const StepShape shape = make_shape({.stage = stage, .dp = 3});
    const Program program = write_train_step(shape);
    const auto norm = std::find_if(program.ops.begin(), program.ops.end(),
                                   [](const Op& op) { return op.kind == OpKind::kNormAndScale; });
    ASSERT_NE(norm, program.ops.end());
    const std::span<const Exchange> exchanges = exchanges_of(program, *norm);
    ASSERT_EQ(exchanges.size(), 1U);
    const auto groups = static_cast<std::int64_t>(shape.groups.size());
    EXPECT_EQ(exchanges[0].bytes, 2 * (3 + groups * (stage == 0 ? 3 : 1)) * 8);
  }
}

// A slot for each unit that remembers, from the first operation to the last, apart from all others.
TEST(StepWriter, DecodingKeepsItsCachesInPlace) {
  for_each_choice([](const ShapeChoice& choice) {
    if (choice.micro_batches > 1 || choice.recompute) return;  // no matter here
    StepShape shape = make_shape(choice);
    std::int64_t wanted = 0;
    for (std::size_t u = 1; u + 1 < shape.units.size(); ++u) {
      shape.units[u].memory.cache = 1000 * static_cast<std::int64_t>(u) + 2;
      wanted += shape.units[u].memory.cache;
    }
    for (const bool frozen : {false, true}) {
      shape.frozen = frozen;
      shape.rounds_master = choice.rounds && !frozen;
      const Program program = write_decode_step(shape);
      ASSERT_EQ(find_fault(program), "") << name_of(choice);
      const MemoryReport memory = add_up(program);
      ASSERT_EQ(memory.by_tag[static_cast<std::size_t>(Tag::kKvCache)], wanted);
      ASSERT_EQ(memory.by_tag[static_cast<std::size_t>(Tag::kMoments)], 0);
      ASSERT_EQ(memory.by_tag[static_cast<std::size_t>(Tag::kGradients)], 0);
      ASSERT_EQ(memory.persistent > 0, frozen);  // else it is another program's to say
      std::size_t caches = 0;
      for (std::size_t b = 0; b < program.buffers.size(); ++b) {
        if (program.buffers[b].tag != Tag::kKvCache) continue;
        ++caches;
        const auto load = std::find_if(program.ops.begin(), program.ops.end(),
                                       [](const Op& op) { return op.kind == OpKind::kLoadBatch; });
        const std::vector<BufferId>& first = load->live;
        ASSERT_EQ(std::count(first.begin(), first.end(), static_cast<BufferId>(b)), 1);
      }
      ASSERT_EQ(caches, shape.units.size() - 2);
    }
  });
}

TEST(StepWriter, ATrainingStepLeavesRoomForWhatSharesItsArena) {
  StepShape shape = make_shape({.stage = 3});
  const std::int64_t own = write_train_step(shape).arena_bytes;
  shape.other_arena_bytes = own - 1;
  EXPECT_EQ(write_train_step(shape).arena_bytes, own);
  shape.other_arena_bytes = own + 4096;
  EXPECT_EQ(write_train_step(shape).arena_bytes, own + 4096);
}

TEST(StepWriter, WhatIsFrozenIsNotTrained) {
  StepShape shape = make_shape({.stage = 3});
  shape.frozen = true;
  EXPECT_THROW((void)write_train_step(shape), Error);
  shape.placement.parameters = Tier::kNvme;  // which nothing has to update
  EXPECT_EQ(find_fault(write_decode_step(shape)), "");
  EXPECT_EQ(find_fault(write_eval_step(shape)), "");
}

TEST(StepWriter, BucketsSmallerThanTheSmallestPieceStillReduceEverything) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const int dp : {1, 3}) {
      const ShapeChoice choice{
          .stage = stage, .dp = dp, .micro_batches = 2, .bucket_bytes = 1, .tied = true};
      const StepShape shape = make_shape(choice);
      const Program program = write_train_step(shape);
      EXPECT_EQ(find_fault(program), "");
      const ReplayResult result = replay(program, shape, true);
      EXPECT_EQ(result.fault, "") << name_of(choice);
      EXPECT_EQ(result.waste, "") << name_of(choice);
    }
  }
}

// Gathers of a group that is not resident: one, and one more for each two uses in a row that lie
// too far apart for the window to hold the group between them.
int expected_gathers(const StepShape& shape, int g) {
  const int head = static_cast<int>(shape.units.size()) - 1;
  std::vector<int> uses;
  int at = 0;
  const auto use = [&](int u, bool backward) {
    const UnitShape& unit = shape.units[static_cast<std::size_t>(u)];
    const bool reads = !backward || unit.backward_reads_params;
    if (reads && std::count(unit.groups.begin(), unit.groups.end(), g) > 0) uses.push_back(at);
    ++at;
  };
  const int rounds = shape.layer_major ? 1 : shape.micro_batches;
  for (int m = 0; m < rounds; ++m) {
    for (int u = 0; u <= head; ++u) use(u, false);
    for (int u = head - 1; u >= 0; --u) use(u, true);
  }
  int gathers = 1;
  for (std::size_t i = 1; i < uses.size(); ++i) {
    gathers += uses[i] - uses[i - 1] > shape.prefetch_units + 1 ? 1 : 0;
  }
  return gathers;
}

TEST(StepWriter, GathersAsOftenAsTheStageHasTo) {
  for_each_choice([](const ShapeChoice& choice) {
    if (choice.recompute || choice.dtype != DType::kFloat32) return;  // no matter here
    const StepShape shape = make_shape(choice);
    const ReplayResult result = replay(write_train_step(shape), shape, true);
    int blocks = 0;
    for (std::size_t g = 0; g < shape.groups.size(); ++g) {
      const bool resident = shape.groups[g].resident;
      const int expected = !is_gathered(shape, static_cast<int>(g)) ? 0
                           : resident                               ? 1
                                      : expected_gathers(shape, static_cast<int>(g));
      ASSERT_EQ(result.gathers[g], expected) << name_of(choice) << ", group " << g;
      if (g >= 2 && g + 1 < shape.groups.size()) blocks += result.gathers[g];
    }
    if (choice.stage < 3) return;
    // Twice a block a micro-batch, but where the window holds it over the turn at the loss head or
    // over the turn from one micro-batch to the next.
    const int n = choice.blocks;
    const int m = choice.layer_major ? 1 : choice.micro_batches;
    const int kept_at_head = std::min(n, (choice.prefetch_units + 1) / 2);
    const int kept_at_start = std::min(n, choice.prefetch_units / 2);
    ASSERT_EQ(blocks, 2 * n * m - m * kept_at_head - (m - 1) * kept_at_start) << name_of(choice);
  });
}

std::int64_t bytes_sent(const Program& program) {
  std::int64_t bytes = 0;
  for (const Op& op : program.ops) bytes += op.wire_bytes;
  return bytes;
}

// A rank sends (dp - 1) / dp of what it reduces or gathers.
TEST(StepWriter, WireBytesAreTheTheorys) {
  for_each_choice([](const ShapeChoice& choice) {
    if (choice.recompute) return;  // no matter here
    const StepShape shape = make_shape(choice);
    std::int64_t elems = 0;
    std::int64_t reduced = 0;  // a micro-batch; a tied table once for each unit that writes it
    std::int64_t gathered = 0;
    for (std::size_t g = 0; g < shape.groups.size(); ++g) {
      elems += shape.groups[g].elems;
      reduced += shape.groups[g].elems * gradient_streams(shape, static_cast<int>(g));
      gathered += shape.groups[g].elems *
                  (shape.groups[g].resident ? 1 : expected_gathers(shape, static_cast<int>(g)));
    }
    const bool each = choice.reduce_every == ReduceEvery::kMicroBatch;
    const std::int64_t reductions = each ? choice.micro_batches : 1;
    const std::int64_t back = choice.stage == 0 ? 4 * elems : gathered * size_of(choice.dtype);
    const std::int64_t sent = size_of(sent_dtype(shape)) * reduced * reductions;
    const std::int64_t theory = (sent + back) / choice.dp * (choice.dp - 1);
    ASSERT_EQ(bytes_sent(write_train_step(shape)), theory) << name_of(choice);
  });
}

TEST(StepWriter, OneMicroBatchSendsTwiceTheParametersAndStage3ThreeTimes) {
  ShapeChoice choice{.dp = 4, .prefetch_units = 0, .tied = true, .blocks = 3};
  std::int64_t once = 0;  // a fp32 reduce-scatter or all-gather of everything
  for (const GroupShape& g : make_shape(choice).groups) once += g.elems * 4 / 4 * 3;
  for (choice.stage = 0; choice.stage < 3; ++choice.stage) {
    EXPECT_EQ(bytes_sent(write_train_step(make_shape(choice))), 2 * once) << choice.stage;
  }
  // Stage 3: reduce, gather for forward and for backward; the head's own and the positions once.
  const StepShape shape = make_shape(choice);
  const std::int64_t read_once = shape.groups[1].elems + shape.groups.back().elems;
  EXPECT_EQ(bytes_sent(write_train_step(shape)), 3 * once - read_once * 4 / 4 * 3);
}

TEST(StepWriter, LayerMajorGathersAUnitAsOftenAsOneMicroBatchDoes) {
  for (const int micro_batches : {2, 5}) {
    ShapeChoice choice{.stage = 3, .prefetch_units = 2, .blocks = 7};
    const StepShape one = make_shape(choice);
    choice.micro_batches = micro_batches;
    choice.layer_major = true;
    const StepShape many = make_shape(choice);
    EXPECT_EQ(replay(write_train_step(many), many, true).gathers,
              replay(write_train_step(one), one, true).gathers);
  }
}

TEST(StepWriter, ReductionGoesOnUnderTheNextBackward) {
  for (const std::int64_t bucket : {3000L, 30'000L, 100'000L, -3000L, -100'000L}) {
    ShapeChoice choice{.stage = 3, .micro_batches = 2, .blocks = 7};
    choice.bucket_bytes = std::abs(bucket);
    choice.layer_major = bucket < 0;
    const Program program = write_train_step(make_shape(choice));
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      if (program.ops[i].kind != OpKind::kBackward) continue;
      for (const OpId w : program.ops[i].waits) {
        if (program.ops[static_cast<std::size_t>(w)].kind != OpKind::kReduceGrads) continue;
        const auto is_backward = [](const Op& op) {
          return op.kind == OpKind::kBackward || op.kind == OpKind::kLossHead;
        };
        EXPECT_GT(std::count_if(program.ops.begin() + w, program.ops.begin() + static_cast<int>(i),
                                is_backward),
                  0)
            << "bucket " << bucket << ", operation " << i << " waits for " << w;
      }
    }
  }
}

// The host adds nothing, so a GPU's gradients need no bounce buffer.
TEST(StepWriter, GradientsAreRoundedOnlyWhenTheyAreComplete) {
  ShapeChoice choice{.stage = 2, .micro_batches = 2, .layer_major = true, .tied = true};
  choice.placement = {.optimizer = Tier::kHost, .gradients = Tier::kHost};
  const auto write = [&choice] {
    StepShape shape = make_shape(choice);
    shape.bounce_bytes = 8192;
    return write_train_step(shape);
  };
  EXPECT_EQ(write().states.bytes(Tier::kHost, Tag::kBounce), 8192);
  const std::int64_t wide = write().states.bytes(Tier::kHost, Tag::kGradients);
  round_gradients(choice);
  Program program = write();
  EXPECT_EQ(program.states.bytes(Tier::kHost, Tag::kBounce), 0);
  // In fp32 the tied table has a stream for each of its two units.
  const std::int64_t table = make_shape(choice).groups[0].shard_elems * 4;
  EXPECT_EQ(2 * program.states.bytes(Tier::kHost, Tag::kGradients), wide - table);
  const auto store = std::find_if(program.ops.begin(), program.ops.end(),
                                  [](const Op& op) { return op.kind == OpKind::kStoreGrads; });
  ASSERT_NE(store, program.ops.end());
  store->accumulate = true;
  EXPECT_NE(find_fault(program).find("adds to gradients that were rounded"), std::string::npos);
  choice.layer_major = false;
  EXPECT_THROW((void)write(), Error) << "a unit's gradients are not kept for the next micro-batch";
  choice.reduce_every = ReduceEvery::kMicroBatch;
  EXPECT_THROW((void)write(), ConfigError) << "the host would add bf16";
}

TEST(StepWriter, RefusesShapesThatMakeNoStep) {
  StepShape shape = make_shape({.stage = 2, .micro_batches = 2});
  shape.reduce_every = ReduceEvery::kStep;
  EXPECT_THROW((void)write_train_step(shape), Error);
  shape = make_shape({});
  shape.units.erase(shape.units.begin(), shape.units.end() - 1);
  EXPECT_THROW((void)write_train_step(shape), Error);
  shape = make_shape({});
  shape.micro_batches = 0;
  EXPECT_THROW((void)write_train_step(shape), Error);
}

}  // namespace
}  // namespace sluice
