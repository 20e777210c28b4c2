#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/program/model/memory_model.hpp"
#include "runtime/program/write/step_writer.hpp"
#include "tests/runtime/program/shapes.hpp"

namespace sluice {
namespace {

std::int64_t bytes_of(const Program& program, Tag tag) {
  std::int64_t bytes = 0;
  for (const StateRow& p : program.states.rows) bytes += p.tag == tag ? p.tier_bytes() : 0;
  return bytes;
}

// Bytes a parameter (padding counts as parameters) of what lives as long as the run, as the table
// of stages has it: parameters + master + moments + gradients.
TEST(MemoryModel, PersistentBytesAreTheTableOfStages) {
  for_each_choice([](const ShapeChoice& choice) {
    const StepShape shape = make_shape(choice);
    std::int64_t full = 0;
    std::int64_t extra = 0;    // of resident groups in stage 3: all but their shard
    std::int64_t rounded = 0;  // shards that are not kept
    for (const GroupShape& g : shape.groups) {
      full += g.elems;
      if (choice.stage == 3 && g.resident) extra += g.elems - g.shard_elems;
      if (choice.rounds && !g.resident) rounded += g.shard_elems;
    }
    const std::int64_t part = full / choice.dp;
    const bool fp32 = choice.dtype == DType::kFloat32;
    const std::int64_t p = fp32 ? 4 : 2;
    // Moments, and in 16 bits master weights: in bf16 the half beside the parameters.
    const std::int64_t states = fp32 ? 8 : choice.dtype == DType::kBFloat16 ? 10 : 12;
    const bool adds_up =
        choice.micro_batches > 1 && choice.reduce_every == ReduceEvery::kMicroBatch;
    // A tied table's two gradients are summed apart.
    const std::int64_t second = adds_up && choice.tied ? 4 * shape.groups[0].shard_elems : 0;
    const std::int64_t summed = choice.stage < 2 && adds_up ? 4 * part : 0;
    const std::int64_t table[] = {(p + 4 + states) * full + summed,
                                  (p + 4) * full + states * part + summed,
                                  p * full + (4 + states) * part, (p + 4 + states) * part};
    const Program program = write_train_step(shape);
    const std::int64_t staging = bytes_of(program, Tag::kCommStaging);
    EXPECT_EQ(staging, shape.comm_staging_bytes);
    ASSERT_EQ(add_up(program).persistent - staging,
              table[choice.stage] + second + (extra - rounded) * size_of(choice.dtype))
        << name_of(choice);
  });
}

TEST(MemoryModel, Stage0TakesSixteenBytesAParameterAndEighteenInFp16) {
  for (const int dp : {1, 2, 4}) {
    for (const auto& [dtype, bytes] :
         {std::pair{DType::kFloat32, 16}, {DType::kBFloat16, 16}, {DType::kFloat16, 18}}) {
      const auto per_param = [dp = dp, dtype = dtype](int stage) {
        const StepShape shape = make_shape({.stage = stage, .dp = dp, .dtype = dtype});
        std::int64_t full = 0;
        for (const GroupShape& g : shape.groups) full += g.elems;
        return static_cast<double>(add_up(write_train_step(shape)).persistent -
                                   shape.comm_staging_bytes) /
               static_cast<double>(full);
      };
      EXPECT_DOUBLE_EQ(per_param(0), bytes);
      EXPECT_DOUBLE_EQ(per_param(3), static_cast<double>(bytes) / dp);
    }
  }
}

// What comes and goes outside the arena, from the units alone: at each unit, what the units before
// it have left, and its own highest point.
std::int64_t dynamic_peak_of(const StepShape& shape, bool training) {
  const std::size_t head = shape.units.size() - 1;
  const auto memory = [&](std::size_t u) -> const UnitMemory& { return shape.units[u].memory; };
  const bool keeps = training && !shape.recompute;
  const int together = training && shape.layer_major ? shape.micro_batches : 1;
  std::int64_t peak = 0;
  std::int64_t held = 0;
  const auto each = [&](std::int64_t above, std::int64_t change) {
    for (int m = 0; m < together; ++m) {
      peak = std::max(peak, held + above);
      held += change;
    }
  };
  const auto kept = [&](std::size_t u) { return keeps ? memory(u).kept : 0; };
  for (std::size_t u = 0; u < head; ++u) {
    const std::int64_t made = memory(u).output + kept(u);
    const std::int64_t high = keeps ? memory(u).forward_peak : memory(u).forward_only_peak;
    const std::int64_t batch = u == 0 ? shape.batch_bytes : 0;
    const std::int64_t input = !training && u > 0 ? memory(u - 1).output : 0;
    each(batch + std::max(high, made), batch + made - input);
  }
  const std::int64_t input = memory(head - 1).output;
  if (!training) {
    each(memory(head).forward_only_peak, 0);
    return peak;
  }
  std::int64_t gradient = memory(head).input_gradient;
  each(std::max(memory(head).backward_peak, gradient), gradient - input);
  for (std::size_t u = head; u-- > 0;) {
    const std::int64_t high = shape.recompute ? memory(u).recompute_peak : memory(u).backward_peak;
    const std::int64_t made = u > 0 ? memory(u).input_gradient : 0;
    const std::int64_t consumed = u > 0 ? memory(u - 1).output : shape.batch_bytes;
    each(std::max(high, made), made - gradient - kept(u) - consumed);
    gradient = made;
  }
  return peak;
}

TEST(MemoryModel, DynamicPeakIsThatOfTheUnits) {
  for_each_choice([](const ShapeChoice& choice) {
    const StepShape shape = make_shape(choice);
    for (const bool training : {true, false}) {
      const Program program = training ? write_train_step(shape) : write_eval_step(shape);
      ASSERT_EQ(add_up(program).dynamic_peak, dynamic_peak_of(shape, training))
          << name_of(choice) << (training ? "" : ", eval");
    }
  });
}

TEST(MemoryModel, TagsAtThePeakAreWhatLivesThere) {
  for (const int stage : {0, 3}) {
    const Program program = write_train_step(make_shape({.stage = stage, .micro_batches = 2}));
    const MemoryReport report = add_up(program);
    ASSERT_GE(report.peak_op, 0);
    std::int64_t slots = 0;
    std::vector<bool> alive(program.buffers.size(), false);
    for (OpId i = 0; i <= report.peak_op; ++i) {
      const Op& op = program.ops[static_cast<std::size_t>(i)];
      for (const BufferId b : op.dead_before) alive[static_cast<std::size_t>(b)] = false;
      for (const BufferId b : op.live) alive[static_cast<std::size_t>(b)] = true;
      if (i == report.peak_op) break;
      for (const BufferId b : op.dead_after) alive[static_cast<std::size_t>(b)] = false;
    }
    for (std::size_t b = 0; b < alive.size(); ++b) {
      if (alive[b] && program.buffers[b].in_arena) slots += program.buffers[b].bytes;
    }
    std::int64_t tags = 0;
    for (const std::int64_t bytes : report.by_tag) tags += bytes;
    EXPECT_EQ(tags, report.persistent + report.dynamic_peak + slots);
    EXPECT_LE(slots, report.arena);
    EXPECT_EQ(report.peak(), report.persistent + report.arena + report.dynamic_peak);
  }
}

// A GPU's allocator keeps segments for small blocks alone: both kinds need their own peak.
TEST(MemoryModel, SmallBlocksAndLargeOnesAddTheirPeaks) {
  Program program;
  program.buffers = {{.tag = Tag::kActivations, .bytes = 70, .small = 30},
                     {.tag = Tag::kGradients, .bytes = 50},
                     {.tag = Tag::kActivationGradients, .bytes = 8, .small = 8}};
  program.ops.resize(2);
  program.ops[0].live = {0};
  program.ops[0].workspace_bytes = 5;
  program.ops[0].dead_after = {0};
  program.ops[1].live = {1, 2};
  const MemoryReport report = add_up(program);
  EXPECT_EQ(report.peak_op, 1);
  EXPECT_EQ(report.small_peak, 30);
  EXPECT_EQ(report.dynamic_peak, 50 + 30);
  EXPECT_EQ(nth(report.by_tag, Tag::kGradients), 50);
  EXPECT_EQ(nth(report.by_tag, Tag::kActivations) + nth(report.by_tag, Tag::kActivationGradients),
            30);
}

bool has_head_slot(const Program& program) {
  return std::any_of(program.buffers.begin(), program.buffers.end(), [](const Buffer& buffer) {
    return buffer.tag == Tag::kLossHead && buffer.in_arena;
  });
}

// All occur: a slot needs less where gathered parameters leave room in the arena. A scratch that is
// taken at the same peak leaves memory for large temporaries.
TEST(MemoryModel, AGpusLossHeadTakesItsScratchUnlessASlotIsSmaller) {
  int slots = 0, smaller = 0, equal = 0;
  for_each_choice([&](const ShapeChoice& choice) {
    StepShape shape = make_shape(choice);
    const Program on_host = write_train_step(shape);
    ASSERT_TRUE(has_head_slot(on_host)) << name_of(choice);
    shape.on_gpu = true;
    const Program on_gpu = write_train_step(shape);
    const std::int64_t saved = add_up(on_host).peak() - add_up(on_gpu).peak();
    if (has_head_slot(on_gpu)) {
      ++slots;
      ASSERT_EQ(saved, 0) << name_of(choice);
    } else {
      ++(saved > 0 ? smaller : equal);
      ASSERT_GE(saved, 0) << name_of(choice);
    }
    ASSERT_FALSE(has_head_slot(write_eval_step(shape))) << name_of(choice);
  });
  EXPECT_GT(slots, 0);
  EXPECT_GT(smaller, 0);
  EXPECT_GT(equal, 0);
}

TEST(MemoryModel, AnEmptyProgramHoldsItsPersistentBytes) {
  Program program;
  program.states.rows.push_back({.elems = 3});
  const MemoryReport report = add_up(program);
  EXPECT_EQ(report.peak(), 12);
  EXPECT_EQ(report.peak_op, -1);
}

}  // namespace
}  // namespace sluice
