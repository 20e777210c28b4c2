#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <tuple>

#include "base/error.hpp"
#include "parallel/pipeline/schedule.hpp"

namespace sluice {
namespace {

void for_each_run(const std::function<void(const PipelineRun&)>& visit) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 32; ++m) {
      visit({PipelineSchedule::kGpipe, p, 1, m});
      visit({PipelineSchedule::k1f1b, p, 1, m});
      visit({PipelineSchedule::kZeroBubble, p, 1, m});
      for (int v = 2; v <= 4; ++v) visit({PipelineSchedule::kInterleaved, p, v, m});
    }
  }
}

std::string text_of(const std::vector<Slot>& slots) {
  constexpr const char* kLetters = "FBIW";
  std::string text;
  for (const Slot& slot : slots) {
    if (!text.empty()) text += ' ';
    text += kLetters[static_cast<std::size_t>(slot.kind)];
    if (slot.chunk > 0) text += std::string(static_cast<std::size_t>(slot.chunk), '\'');
    text += std::to_string(slot.micro_batch);
  }
  return text;
}

TEST(PipelineSchedule, SmallOnesAreTheKnownOnes) {
  EXPECT_EQ(text_of(list_slots({PipelineSchedule::kGpipe, 2, 1, 3}, 0)), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(text_of(list_slots({PipelineSchedule::k1f1b, 3, 1, 5}, 0)),
            "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4");
  EXPECT_EQ(text_of(list_slots({PipelineSchedule::k1f1b, 3, 1, 2}, 0)), "F0 F1 B0 B1");
  EXPECT_EQ(text_of(list_slots({PipelineSchedule::k1f1b, 3, 1, 3}, 2)), "F0 B0 F1 B1 F2 B2");
  EXPECT_EQ(text_of(list_slots({PipelineSchedule::kInterleaved, 2, 2, 2}, 1)),
            "F0 F1 F'0 B'0 F'1 B'1 B0 B1");
  EXPECT_EQ(text_of(list_slots({PipelineSchedule::kInterleaved, 2, 2, 3}, 1)),
            "F0 F1 F'0 B'0 F'1 B'1 F2 B0 B1 F'2 B'2 B2");
  EXPECT_EQ(text_of(list_slots({PipelineSchedule::kZeroBubble, 3, 1, 4}, 0)),
            "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3");
  EXPECT_EQ(text_of(list_slots({PipelineSchedule::kZeroBubble, 3, 1, 4}, 2)),
            "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3");
}

TEST(PipelineSchedule, EverySlotRunsOnceAndMicroBatchesInTurn) {
  for_each_run([](const PipelineRun& run) {
    const bool split = run.schedule == PipelineSchedule::kZeroBubble;
    for (int s = 0; s < run.stages; ++s) {
      const std::vector<Slot> slots = list_slots(run, s);
      ASSERT_EQ(static_cast<int>(slots.size()),
                (split ? 3 : 2) * run.micro_batches * run.virtual_stages);
      std::set<std::tuple<SlotKind, int, int>> ran;
      for (const Slot& slot : slots) {
        ASSERT_TRUE(ran.insert({slot.kind, slot.chunk, slot.micro_batch}).second);
        if (slot.micro_batch > 0) {
          ASSERT_EQ(ran.count({slot.kind, slot.chunk, slot.micro_batch - 1}), 1U);
        }
        const bool forward = slot.kind == SlotKind::kForward;
        const SlotKind before =
            slot.kind == SlotKind::kBackwardWeights ? SlotKind::kBackwardInput : SlotKind::kForward;
        ASSERT_TRUE(forward || ran.count({before, slot.chunk, slot.micro_batch}) == 1);
      }
    }
  });
}

TEST(PipelineSchedule, NoStageHoldsMoreThanItsLimit) {
  for_each_run([](const PipelineRun& run) {
    for (int s = 0; s < run.stages; ++s) {
      int forwards = 0;
      int most = 0;
      int held = 0;  // until the gradients of the weights
      int most_held = 0;
      for (const Slot& slot : list_slots(run, s)) {
        if (slot.kind == SlotKind::kForward) {
          most = std::max(most, ++forwards);
          most_held = std::max(most_held, ++held);
        }
        if (slot.kind == SlotKind::kBackward || slot.kind == SlotKind::kBackwardInput) --forwards;
        if (slot.kind == SlotKind::kBackward || slot.kind == SlotKind::kBackwardWeights) --held;
      }
      const int limit = in_flight_limit(run, s);
      ASSERT_LE(most, limit);
      if (run.schedule != PipelineSchedule::kInterleaved || run.micro_batches % run.stages == 0) {
        ASSERT_EQ(most, limit);
      }
      if (run.schedule == PipelineSchedule::kZeroBubble) {
        ASSERT_LE(most_held, std::min(run.stages, run.micro_batches)) << "1f1b's first stage";
      }
    }
  });
}

// No circle of stages, also where nobody starts at an equal time.
TEST(PipelineSchedule, TimesRespectWhoWaitsForWhom) {
  for_each_run([](const PipelineRun& run) {
    std::vector<std::vector<Slot>> slots;
    for (int s = 0; s < run.stages; ++s) slots.push_back(list_slots(run, s));
    const auto times = time_slots(slots, {.forward = 1.3, .backward_input = 0.7});
    for (int s = 0; s < run.stages; ++s) {
      const auto& mine = slots[static_cast<std::size_t>(s)];
      for (std::size_t k = 0; k < mine.size(); ++k) {
        const SlotPeer from = peer_of(mine[k], s, run.stages, run.virtual_stages, false);
        if (from.stage < 0) continue;
        const auto& there = slots[static_cast<std::size_t>(from.stage)];
        const auto made = std::find(there.begin(), there.end(), from.slot) - there.begin();
        ASSERT_LT(made, static_cast<std::ptrdiff_t>(there.size()));
        ASSERT_LE(times[static_cast<std::size_t>(from.stage)][static_cast<std::size_t>(made)].end,
                  times[static_cast<std::size_t>(s)][k].begin);
        const SlotPeer back = peer_of(from.slot, from.stage, run.stages, run.virtual_stages, true);
        ASSERT_EQ(back.stage, s);
        ASSERT_EQ(back.slot, mine[k]);
      }
    }
  });
}

TEST(PipelineSchedule, WhatIsSentLivesForOneSlotAtLeast) {
  for_each_run([](const PipelineRun& run) {
    for (int s = 0; s < run.stages; ++s) {
      const std::vector<Slot> slots = list_slots(run, s);
      const std::vector<int> after = slots_after_sends(run, s);
      ASSERT_EQ(after.size(), slots.size());
      for (std::size_t k = 0; k < slots.size(); ++k) {
        const bool sends = peer_of(slots[k], s, run.stages, run.virtual_stages, true).stage >= 0;
        ASSERT_EQ(after[k] >= 0, sends);
        if (!sends) continue;
        ASSERT_LE(after[k], static_cast<int>(slots.size()));
        ASSERT_TRUE(after[k] > static_cast<int>(k) + 1 ||
                    after[k] == static_cast<int>(slots.size()));
      }
    }
  });
}

TEST(PipelineSchedule, SlotsThatWaitInACircleAreRefused) {
  const Slot forward{SlotKind::kForward, 0, 0};
  const Slot backward{SlotKind::kBackward, 0, 0};
  EXPECT_NO_THROW((void)time_slots({{forward, backward}, {forward, backward}}));
  EXPECT_THROW((void)time_slots({{backward, forward}, {forward, backward}}), Error);
}

TEST(PipelineSchedule, WhatHasNoMeaningIsRefused) {
  EXPECT_THROW(check_pipeline_run({PipelineSchedule::k1f1b, 2, 2, 4}), ConfigError);
  EXPECT_THROW(check_pipeline_run({PipelineSchedule::kInterleaved, 2, 1, 4}), ConfigError);
  EXPECT_THROW(check_pipeline_run({PipelineSchedule::kGpipe, 2, 1, 0}), ConfigError);
  EXPECT_THROW((void)list_slots({PipelineSchedule::kGpipe, 2, 1, 1}, 2), Error);
}

}  // namespace
}  // namespace sluice
