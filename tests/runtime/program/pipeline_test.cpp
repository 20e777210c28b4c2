// Programs of pipeline stages: each by itself, and all together.
#include <gtest/gtest.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "runtime/program/check/pipeline_check.hpp"
#include "runtime/program/check/program_check.hpp"
#include "runtime/program/model/memory_model.hpp"
#include "runtime/program/write/step_writer.hpp"
#include "runtime/program/write/use_order.hpp"
#include "tests/runtime/program/stages.hpp"
#include "tests/runtime/program/tier_simulation.hpp"

namespace sluice {
namespace {

// Every unit once a micro-batch forward, once backward, and where that is split, its weights once.
void expect_each_once(const StepShape& shape, const Program& program, const std::string& name) {
  std::map<std::tuple<OpKind, int, int>, int> ran;
  std::set<std::pair<int, int>> split;
  for (const Op& op : program.ops) {
    if (op.lane != Lane::kCompute || op.unit < 0) continue;
    ++ran[{op.kind, op.unit, op.micro_batch}];
    if (op.split) split.insert({op.unit, op.micro_batch});
  }
  std::size_t expected = 0;
  for (int u = 0; u < static_cast<int>(shape.units.size()); ++u) {
    for (int m = 0; m < shape.micro_batches; ++m) {
      if (is_loss_head(shape, u)) {
        ASSERT_EQ((ran[{OpKind::kLossHead, u, m}]), 1) << name;
        expected += 1;
        continue;
      }
      ASSERT_EQ((ran[{OpKind::kForward, u, m}]), 1) << name;
      ASSERT_EQ((ran[{OpKind::kBackward, u, m}]), 1) << name;
      expected += 2;
      const bool in_two = shape.units[static_cast<std::size_t>(u)].memory.deferred > 0;
      ASSERT_EQ(split.count({u, m}), in_two ? 1U : 0U) << name;
      if (!in_two) continue;
      ASSERT_EQ((ran[{OpKind::kBackwardWeights, u, m}]), 1) << name;
      expected += 1;
    }
  }
  ASSERT_EQ(ran.size(), expected) << name;
}

// The most micro-batches whose input the unit has taken and whose backward has not run.
int most_in_flight(const Program& program, const std::set<int>& first_units) {
  int now = 0;
  int most = 0;
  for (const Op& op : program.ops) {
    if (first_units.count(op.unit) == 0) continue;
    if (op.kind == OpKind::kForward) most = std::max(most, ++now);
    if (op.kind == OpKind::kBackward) --now;
  }
  return most;
}

TEST(PipelinePrograms, AllStagesFitTogetherAndHoldWhatTheScheduleSays) {
  int i = 0;
  for (const PipelineRun& run : all_runs(8, 32, 4)) {
    if (i++ % kCaseStride != 0) continue;
    ShapeChoice choice{.stage = i % 4, .blocks = run.stages * run.virtual_stages - 1 + i % 2};
    choice.recompute = i % 3 == 0;
    choice.tied = i % 2 == 0;
    const std::vector<StepShape> shapes = make_stages(choice, run);
    const std::vector<Program> programs = write_stages(shapes);
    const std::string name = name_of(run) + name_of(choice);
    for (const int capacity : {0, 1}) {
      ASSERT_EQ(find_pipeline_fault(programs, capacity), "") << name << ", capacity " << capacity;
    }
    for (std::size_t s = 0; s < shapes.size(); ++s) {
      expect_each_once(shapes[s], programs[s], name);
      std::set<int> first_units;
      for (int c = 0; c < run.virtual_stages; ++c) first_units.insert(chunk_begin(shapes[s], c));
      const int limit = in_flight_limit(run, static_cast<int>(s));
      if (!is_loss_head(shapes[s], chunk_begin(shapes[s], run.virtual_stages - 1))) {
        const int most = most_in_flight(programs[s], first_units);
        ASSERT_LE(most, limit) << name;
        if (run.micro_batches % run.stages == 0) {
          ASSERT_EQ(most, limit) << name << s;
        }
      }
      if (i % 7 == 0) {
        ASSERT_EQ(find_fault(programs[s]), "") << name << ", stage " << s;
      }
    }
  }
}

std::vector<PipelineRun> few_runs() {
  return {{PipelineSchedule::kGpipe, 2, 1, 3},       {PipelineSchedule::k1f1b, 2, 1, 3},
          {PipelineSchedule::k1f1b, 3, 1, 5},        {PipelineSchedule::kInterleaved, 2, 2, 3},
          {PipelineSchedule::kInterleaved, 3, 2, 4}, {PipelineSchedule::kZeroBubble, 3, 1, 4},
          {PipelineSchedule::kZeroBubble, 2, 1, 1}};
}

// ZeRO stages, recomputation, tied tables, buckets, tiers.
std::vector<ShapeChoice> choices(int blocks) {
  std::vector<ShapeChoice> all;
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool recompute : {false, true}) {
      for (const std::int64_t bucket : {3000L, 60'000L}) {
        for (const int prefetch : {0, 1, 3}) {
          ShapeChoice choice{.stage = stage,
                             .recompute = recompute,
                             .bucket_bytes = bucket,
                             .prefetch_units = prefetch,
                             .tied = recompute,
                             .blocks = blocks};
          all.push_back(choice);
          if (stage < 2 && prefetch == 1) {
            choice.reduce_every = ReduceEvery::kStep;
            all.push_back(choice);
          }
        }
      }
    }
  }
  const std::size_t plain = all.size();
  for (std::size_t i = 0; i < plain; ++i) {
    for (const Tier tier : {Tier::kHost, Tier::kNvme}) {
      ShapeChoice choice = all[i];
      choice.placement = {.optimizer = tier, .activations = tier, .chunk_elems = 4096};
      choice.placement.chunk_slots = 2;
      if (choice.stage == 3) choice.placement.parameters = tier;
      if (choice.stage >= 2 && !choice.tied) choice.placement.gradients = tier;
      choice.placement.speculate = tier == Tier::kNvme && i % 2 == 0;
      all.push_back(choice);
    }
  }
  return all;
}

TEST(PipelinePrograms, AreSoundUnderEveryStageAndTier) {
  for (const PipelineRun& run : few_runs()) {
    int i = 0;
    for (const ShapeChoice& choice : choices(5)) {
      if (i++ % kCaseStride != 0) continue;
      const std::vector<StepShape> shapes = make_stages(choice, run);
      for (const bool training : {true, false}) {
        const std::vector<Program> programs = write_stages(shapes, training);
        const std::string name = name_of(run) + name_of(choice) + (training ? "" : ", eval");
        ASSERT_EQ(find_pipeline_fault(programs, 1), "") << name;
        for (std::size_t s = 0; s < programs.size(); ++s) {
          ASSERT_EQ(find_fault(programs[s]), "") << name << ", stage " << s;
        }
      }
    }
  }
}

// A stage's steps, and its evaluation between, an adversary deciding when everything happens.
std::string play(const StepShape& shape, const Program& train, std::uint64_t seed) {
  const Program eval = write_eval_step(shape);
  const Program updates = write_update_step(shape);
  const Playing playing[] = {{&train, PlayKind::kTrain},
                             {&train, PlayKind::kTrain},
                             {&updates, PlayKind::kUpdates},
                             {&eval, PlayKind::kEvaluate},
                             {&train, PlayKind::kTrain}};
  return simulate(playing, shape, seed);
}

TEST(PipelinePrograms, NoTimingMakesAStageWrong) {
  std::uint64_t seed = 0;
  for (const PipelineRun& run : few_runs()) {
    int i = 0;
    for (const ShapeChoice& choice : choices(5)) {
      if (i++ % (3 * kCaseStride) != 0) continue;
      for (const StepShape& shape : make_stages(choice, run)) {
        for (int turn = 0; turn < 3; ++turn) {
          ASSERT_EQ(play(shape, write_train_step(shape), ++seed), "")
              << name_of(run) << name_of(choice) << ", stage " << shape.pipeline.stage;
        }
      }
    }
  }
}

// Whatever the adversary can make fail, the checker has found.
struct Judge {
  int tried = 0;
  int found = 0;
  int shown = 0;

  void operator()(const StepShape& shape, const Program& broken, const std::string& name) {
    ++tried;
    found += find_fault(broken).empty() ? 0 : 1;
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      std::string fault;
      try {
        fault = play(shape, broken, seed);
      } catch (const std::exception& error) {
        fault = error.what();
      }
      if (fault.empty()) continue;
      ++shown;
      EXPECT_NE(find_fault(broken), "") << name << ": " << fault;
      return;
    }
  }
};

void for_each_victim(const std::function<void(const StepShape&, const std::string&)>& visit) {
  int i = 0;
  for (const PipelineRun& run : few_runs()) {
    if (run.stages * run.virtual_stages > 4) continue;
    for (const ShapeChoice& choice : choices(4)) {
      if (i++ % (23 * kCaseStride) != 0) continue;
      for (const StepShape& shape : make_stages(choice, run)) {
        visit(shape,
              name_of(run) + name_of(choice) + ", stage " + std::to_string(shape.pipeline.stage));
      }
    }
  }
}

TEST(PipelineFaults, EveryDroppedWaitThatMattersIsNoticed) {
  Judge judge;
  for_each_victim([&](const StepShape& shape, const std::string& name) {
    const Program sound = write_train_step(shape);
    for (std::size_t i = 0; i < sound.ops.size(); ++i) {
      for (std::size_t w = 0; w < sound.ops[i].waits.size(); ++w) {
        const OpId on = sound.ops[i].waits[w];
        if (sound.ops[static_cast<std::size_t>(on)].lane != Lane::kPipe) continue;
        Program broken = sound;
        broken.ops[i].waits.erase(broken.ops[i].waits.begin() + static_cast<std::ptrdiff_t>(w));
        judge(shape, broken, name + ", operation " + std::to_string(i));
      }
    }
  });
  EXPECT_GT(judge.tried, 50);
  EXPECT_GT(judge.shown, judge.tried / 2);
}

// A send or receive that is missing, comes twice, or is of another micro-batch; a backward without
// its second half.
TEST(PipelineFaults, EveryWrongMessageIsNoticed) {
  Judge judge;
  for_each_victim([&](const StepShape& shape, const std::string& name) {
    const Program sound = write_train_step(shape);
    for (std::size_t i = 0; i < sound.ops.size(); ++i) {
      const bool half = sound.ops[i].kind == OpKind::kBackwardWeights;
      if (sound.ops[i].lane != Lane::kPipe && !half) continue;
      Program missing = sound;
      missing.ops.erase(missing.ops.begin() + static_cast<std::ptrdiff_t>(i));
      for (Op& op : missing.ops) {
        std::erase(op.waits, static_cast<OpId>(i));
        for (OpId& w : op.waits) w -= w > static_cast<OpId>(i) ? 1 : 0;
      }
      const std::string what = name + ", operation " + std::to_string(i);
      judge(shape, missing, what + " missing");
      EXPECT_NE(find_fault(missing), "") << what;
      Program other = sound;
      other.ops[i].micro_batch = (other.ops[i].micro_batch + 1) % shape.micro_batches;
      if (shape.micro_batches > 1) {
        EXPECT_NE(find_fault(other), "") << what;
      }
      Program again = sound;
      again.ops.push_back(again.ops[i]);
      EXPECT_NE(find_fault(again), "") << what;
    }
  });
  EXPECT_GT(judge.tried, 50);
}

TEST(PipelineFaults, LinksWhoseEndsDifferAreNoticed) {
  const std::vector<StepShape> shapes = make_stages({.blocks = 4}, few_runs()[4]);
  const std::vector<Program> sound = write_stages(shapes);
  for (std::size_t s = 0; s < sound.size(); ++s) {
    for (std::size_t i = 0; i < sound[s].ops.size(); ++i) {
      if (sound[s].ops[i].lane != Lane::kPipe) continue;
      std::vector<Program> broken = sound;
      broken[s].ops[i].micro_batch ^= 1;
      EXPECT_NE(find_pipeline_fault(broken), "");
      broken = sound;
      broken[s].buffers[static_cast<std::size_t>(sound[s].ops[i].device_slot)].bytes += 64;
      EXPECT_NE(find_pipeline_fault(broken), "");
    }
  }
}

// What a stage sends before it waits for what the other has not yet come to.
TEST(PipelineFaults, DeadlocksAreNoticed) {
  const PipelineRun run{PipelineSchedule::kGpipe, 2, 1, 4};
  std::vector<Program> programs = write_stages(make_stages({.blocks = 2}, run));
  EXPECT_EQ(find_pipeline_fault(programs), "");
  // The first forward waits for the last gradient.
  std::vector<Op>& ops = programs[0].ops;
  const auto forward = std::find_if(ops.begin(), ops.end(),
                                    [](const Op& op) { return op.kind == OpKind::kForward; });
  OpId gradient = -1;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind == OpKind::kReceiveGradient) gradient = static_cast<OpId>(i);
  }
  forward->waits.push_back(gradient);
  EXPECT_NE(find_pipeline_fault(programs).find("waits for ever"), std::string::npos);
}

std::int64_t highest(const PipelineRun& run, int stage) {
  return add_up(write_stages(
                    make_stages({.stage = 3, .blocks = 6}, run))[static_cast<std::size_t>(stage)])
      .dynamic_peak;
}

TEST(PipelinePrograms, MemoryFollowsWhatIsInFlight) {
  using S = PipelineSchedule;
  const auto peak = [](S schedule, int m, int stage) {
    return highest({schedule, 4, 1, m}, stage);
  };
  EXPECT_EQ(peak(S::k1f1b, 6, 0), peak(S::k1f1b, 16, 0)) << "however many micro-batches";
  EXPECT_EQ(peak(S::kZeroBubble, 6, 1), peak(S::kZeroBubble, 16, 1));
  EXPECT_EQ(peak(S::k1f1b, 3, 1), peak(S::kGpipe, 3, 1)) << "as many forwards ahead";
  EXPECT_GT(peak(S::k1f1b, 16, 1), peak(S::k1f1b, 16, 2)) << "less towards the end";
  // Two blocks a stage: each micro-batch more holds the same.
  const std::int64_t more = peak(S::kGpipe, 9, 1) - peak(S::kGpipe, 8, 1);
  EXPECT_GT(more, 0);
  EXPECT_EQ(peak(S::kGpipe, 16, 1) - peak(S::kGpipe, 8, 1), 8 * more);
}

// Of what is sent, no more than a few tensors at a time, and none of what is received beyond the
// slot that is next.
TEST(PipelinePrograms, WhatIsSentIsNotHeldLong) {
  for (const PipelineRun& run : all_runs(4, 9, 3)) {
    for (const Program& program :
         write_stages(make_stages({.blocks = 2 * run.stages * run.virtual_stages}, run))) {
      std::set<BufferId> sent;
      std::size_t most = 0;
      for (const Op& op : program.ops) {
        for (const BufferId b : op.dead_before) sent.erase(b);
        if (op.kind == OpKind::kSendActivation) sent.insert(op.device_slot);
        most = std::max(most, sent.size());
      }
      // Forwards ahead may be sent before the next stage comes to them: gpipe's not more than two.
      ASSERT_LE(most, 3U) << name_of(run);
    }
  }
}

TEST(PipelinePrograms, WhatCannotBeComposedIsRefused) {
  const PipelineRun run{PipelineSchedule::k1f1b, 2, 1, 2};
  StepShape shape = make_stages({.stage = 3}, run)[0];
  shape.layer_major = true;
  EXPECT_THROW((void)write_train_step(shape), ConfigError);
  shape = make_stages({.stage = 3}, run)[0];
  shape.pipeline.chunk_ends = {1};
  EXPECT_THROW((void)write_train_step(shape), Error);
  shape = make_stages({.stage = 3, .tied = true}, run)[0];
  shape.placement.optimizer = Tier::kNvme;
  shape.placement.gradients = Tier::kNvme;
  EXPECT_THROW((void)write_train_step(shape), ConfigError);
  shape.placement.gradients = Tier::kHost;
  EXPECT_NO_THROW((void)write_train_step(shape));
}

// Decoding keeps its caches from the first operation to the last, on every stage.
TEST(PipelinePrograms, StagesDecode) {
  for (const PipelineRun& run : few_runs()) {
    std::vector<Program> programs;
    for (StepShape& shape : make_stages({.stage = 3, .blocks = 5}, run)) {
      std::int64_t caches = 0;
      // Blocks alone have caches, and the loss head may have a stage to itself.
      const std::size_t blocks = shape.units.size() - (shape.ends_model() ? 1 : 0);
      for (std::size_t u = shape.begins_model() ? 1 : 0; u < blocks; ++u) {
        caches += shape.units[u].memory.cache = shape.units[u].memory.kept;
      }
      shape.frozen = true;
      programs.push_back(write_decode_step(shape));
      ASSERT_EQ(find_fault(programs.back()), "") << name_of(run);
      const TagBytes tags = add_up(programs.back()).by_tag;
      ASSERT_EQ(tags[static_cast<std::size_t>(Tag::kKvCache)], caches);
      const bool first = shape.begins_model();
      const auto loads = std::count_if(programs.back().ops.begin(), programs.back().ops.end(),
                                       [](const Op& op) { return op.kind == OpKind::kLoadBatch; });
      ASSERT_EQ(loads, first ? 1 : 0);
    }
    ASSERT_EQ(find_pipeline_fault(programs, 1), "") << name_of(run);
  }
}

}  // namespace
}  // namespace sluice
