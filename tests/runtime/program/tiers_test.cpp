// Programs with tiers, by two opinions: the checker's rules, and a simulation that plays them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "runtime/program/check/program_check.hpp"
#include "runtime/program/model/time_model.hpp"
#include "runtime/program/write/step_writer.hpp"
#include "tests/runtime/program/shapes.hpp"
#include "tests/runtime/program/tier_simulation.hpp"

namespace sluice {
namespace {

constexpr int kRounds = 6;

template <typename T, std::size_t n>
T one_of(std::mt19937_64& random, const std::array<T, n>& values) {
  return values[random() % n];
}

// Everything but stage and tiers, by chance.
ShapeChoice random_choice(std::mt19937_64& random) {
  ShapeChoice choice;
  choice.dp = one_of(random, std::array{1, 2, 3});
  choice.micro_batches = one_of(random, std::array{1, 3});
  choice.layer_major = random() % 2 == 0;
  choice.bucket_bytes = one_of(random, std::array{3000L, 30'000L, 1L << 40});
  choice.prefetch_units = one_of(random, std::array{0, 1, 3});
  choice.tied = random() % 2 == 0;
  choice.persist = random() % 2 == 0;
  choice.dtype = one_of(random, std::array{DType::kFloat32, DType::kBFloat16});
  choice.blocks = one_of(random, std::array{1, 2, 4});
  choice.recompute = random() % 2 == 0;
  choice.placement.device_fraction = one_of(random, std::array{0.0, 0.9});
  choice.placement.chunk_elems = one_of(random, std::array{512L, 1L << 22});
  choice.placement.chunk_slots = one_of(random, std::array{1, 2, 4});
  choice.placement.speculate = random() % 2 == 0;
  return choice;
}

struct Programs {
  Program train;
  Program updates;
  Program evaluate;
};

// Three steps, a look at the parameters, a step that finds no update left to it, and one that does.
std::vector<Playing> some_steps(const Programs& programs) {
  const Playing train{&programs.train, PlayKind::kTrain};
  const Playing updates{&programs.updates, PlayKind::kUpdates};
  const Playing evaluate{&programs.evaluate, PlayKind::kEvaluate};
  return {train, train, train, updates, evaluate, train, train, updates, evaluate};
}

// The first fault that some timing shows.
std::string play(const Programs& programs, const StepShape& shape, std::uint64_t first = 0,
                 int seeds = 20) {
  for (std::uint64_t seed = first; seed < first + static_cast<std::uint64_t>(seeds); ++seed) {
    const std::string fault = simulate(some_steps(programs), shape, seed);
    if (!fault.empty()) return "seed " + std::to_string(seed) + ", " + fault;
  }
  return "";
}

// A choice of tiers, and what else goes with it.
void place(ShapeChoice& choice, int tiers, std::mt19937_64& random) {
  Placement& p = choice.placement;
  place(p, tiers);
  if (p.parameters != Tier::kDevice || p.gradients != Tier::kDevice) p.device_fraction = 0;
  if (p.optimizer == Tier::kNvme) choice.host_fraction = choice.prefetch_units == 1 ? 0 : 0.5;
  if (choice.stage < 2 && random() % 2 == 0) choice.reduce_every = ReduceEvery::kStep;
  if (may_round_gradients(choice) && choice.blocks != 2) round_gradients(choice);
  // Many tiny chunks of a small model.
  if (choice.dp == 3 && choice.blocks == 1 && random() % 2 == 0) p.chunk_elems = 32;
}

Programs write_all(const StepShape& shape) {
  return {write_train_step(shape), write_update_step(shape), write_eval_step(shape)};
}

// Every legal stage and tiers, `rounds` times, with chances of their own.
void for_each_tiers(int rounds, std::uint64_t seed,
                    const std::function<void(const ShapeChoice&, std::mt19937_64&)>& visit) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < rounds * kPlacements * 4; ++i) {
    ShapeChoice choice = random_choice(random);
    choice.stage = i % 4;
    place(choice, i / 4 % kPlacements, random);
    if (is_legal(choice)) visit(choice, random);
  }
}

TEST(Tiers, EveryProgramIsSoundByBothOpinions) {
  int played = 0;
  for_each_tiers(kRounds, 5, [&](const ShapeChoice& choice, std::mt19937_64& random) {
    const StepShape shape = make_shape(choice);
    const Programs programs = write_all(shape);
    for (const Program* p : {&programs.train, &programs.updates, &programs.evaluate}) {
      ASSERT_EQ(find_fault(*p), "") << name_of(choice) << "; played: " << play(programs, shape);
    }
    ASSERT_EQ(play(programs, shape, random() % 1000, 5 / kCaseStride), "") << name_of(choice);
    ++played;
  });
  EXPECT_EQ(played, kRounds * 96);
}

TEST(Tiers, RefusesTiersThatMeanNothing) {
  std::mt19937_64 random(6);
  int refused = 0;
  for (int i = 0; i < kPlacements * 4; ++i) {
    ShapeChoice choice{.stage = i % 4};
    place(choice, i / 4, random);
    if (is_legal(choice)) continue;
    ++refused;
    EXPECT_THROW((void)write_train_step(make_shape(choice)), Error) << name_of(choice);
    EXPECT_THROW((void)write_update_step(make_shape(choice)), Error) << name_of(choice);
  }
  EXPECT_EQ(refused, kPlacements * 4 - 96);
  ShapeChoice choice{.stage = 3};
  choice.placement = {.optimizer = Tier::kHost, .gradients = Tier::kHost, .device_fraction = 0.5};
  EXPECT_THROW((void)write_train_step(make_shape(choice)), Error) << "gradients are not there";
  choice.placement = {.optimizer = Tier::kHost, .chunk_slots = 0};
  EXPECT_THROW((void)write_train_step(make_shape(choice)), Error);
}

// A step of four blocks whose states are on NVMe and are updated in chunks of `slots`.
StepShape shape_on_nvme(int slots) {
  ShapeChoice choice{.stage = 3, .micro_batches = 3, .tied = true, .blocks = 4};
  choice.placement = {.optimizer = Tier::kNvme, .chunk_elems = 512, .chunk_slots = slots};
  return make_shape(choice);
}

TEST(Tiers, AsManyChunksAsTheRingHoldsAreReadUnderTheLastBackward) {
  for (const int slots : {1, 4, 1000}) {
    const Program program = write_train_step(shape_on_nvme(slots));
    const Program updates = write_update_step(shape_on_nvme(slots));
    const auto chunks = static_cast<int>(program.chunks.size());
    EXPECT_EQ(program.chunks_ahead, std::min(slots, chunks));
    EXPECT_EQ(updates.chunks_ahead, program.chunks_ahead);
    int heads = 0;
    int read = 0;
    int ahead = 0;
    for (const Op& op : program.ops) {
      if (op.kind == OpKind::kLossHead) ++heads;
      if (op.kind == OpKind::kNormAndScale) {
        EXPECT_EQ(ahead, program.chunks_ahead);
      }
      if (op.kind != OpKind::kReadStates) continue;
      ++read;
      if (!op.ahead) continue;
      EXPECT_EQ(heads, 3);
      EXPECT_EQ(op.chunk, ahead++) << "what is needed first comes first";
    }
    EXPECT_EQ(read, chunks) << "each chunk is read once a step";
  }
}

// A second for each transfer of states, ten for each unit, nothing for the rest.
TEST(Tiers, AStepWaitsForTheDiskOnlyWithWhatTheRingDoesNotHold) {
  const auto first_forward = [](int slots) {
    const Program program = write_train_step(shape_on_nvme(slots));
    std::vector<double> seconds;
    std::size_t first = program.ops.size();
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      const Op& op = program.ops[i];
      if (op.kind == OpKind::kForward) first = std::min(first, i);
      seconds.push_back(op.lane == Lane::kDisk ? 1 : op.unit >= 0 ? 10 : 0);
    }
    return schedule(program, seconds, 2, false).timeline[first].begin;
  };
  EXPECT_GT(first_forward(1), 1);
  EXPECT_GT(first_forward(1), first_forward(4) + 1);
  EXPECT_LT(first_forward(1000), 1);
}

// --- the checker is checked: what the simulation can make fail, it has to notice ---

struct Tally {
  int broken = 0;
  int early = 0;    // of these, speculative operations
  int noticed = 0;  // by the checker
  int tried = 0;    // of these, played
  int shown = 0;    // of these, some timing made a fault of it
};

void judge(Programs& programs, const StepShape& shape, const std::string& what, Tally& tally) {
  constexpr int kPlayed = kCaseStride > 1 ? 4 : 16;  // of what the checker noticed, every so many
  if (++tally.broken % kCaseStride != 0) return;
  if (!find_fault(programs.train).empty()) {
    ++tally.noticed;
    if (tally.noticed % kPlayed != 0) return;
    ++tally.tried;
    if (!play(programs, shape, 0, 20).empty()) ++tally.shown;
    return;
  }
  EXPECT_EQ(play(programs, shape, 0, 5), "") << what << ": the checker finds nothing";
}

void for_each_victim(
    std::uint64_t seed,
    const std::function<void(const std::string&, const StepShape&, Programs&)>& visit) {
  int i = 0;
  for_each_tiers(1, seed, [&](ShapeChoice choice, std::mt19937_64& random) {
    if (++i % 3 != static_cast<int>(seed % 3)) return;
    choice.placement.chunk_elems = choice.dp == 3 ? 512 : 2048;
    choice.blocks = 1 + static_cast<int>(random() % 2);
    choice.micro_batches = std::min(choice.micro_batches, 2);
    if (choice.placement.speculate && choice.placement.optimizer == Tier::kNvme) {
      // Something to speculate on: early gradients, and more chunks than the ring holds.
      choice.blocks = 4;
      choice.bucket_bytes = 3000;
      choice.placement.chunk_slots = 1 + static_cast<int>(random() % 2);
      choice.placement.device_fraction = choice.host_fraction = 0;
    }
    const StepShape shape = make_shape(choice);
    Programs programs = write_all(shape);
    visit(name_of(choice), shape, programs);
  });
}

TEST(TierFaults, EveryDroppedWaitThatMattersIsNoticed) {
  Tally tally;
  for_each_victim(7, [&](const std::string& name, const StepShape& shape, Programs& programs) {
    for (std::size_t i = 0; i < programs.train.ops.size(); ++i) {
      const std::vector<OpId> waits = programs.train.ops[i].waits;
      for (std::size_t w = 0; w < waits.size(); ++w) {
        programs.train.ops[i].waits.erase(programs.train.ops[i].waits.begin() +
                                          static_cast<std::ptrdiff_t>(w));
        judge(programs, shape,
              name + ", operation " + std::to_string(i) + " without its wait " + std::to_string(w),
              tally);
        tally.early += programs.train.ops[i].speculative ? 1 : 0;
        programs.train.ops[i].waits = waits;
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  });
  EXPECT_GT(tally.shown, tally.tried / 2);
  EXPECT_GT(tally.tried, 20);
  EXPECT_GT(tally.early, 100);
}

// Operation `later` is issued right before `earlier`.
Program moved(const Program& program, std::size_t earlier, std::size_t later) {
  Program result = program;
  auto& ops = result.ops;
  std::rotate(ops.begin() + static_cast<std::ptrdiff_t>(earlier),
              ops.begin() + static_cast<std::ptrdiff_t>(later),
              ops.begin() + static_cast<std::ptrdiff_t>(later) + 1);
  for (Op& op : ops) {
    for (OpId& w : op.waits) {
      const auto was = static_cast<std::size_t>(w);
      if (was == later) {
        w = static_cast<OpId>(earlier);
      } else if (was >= earlier && was < later) {
        ++w;
      }
    }
  }
  return result;
}

// Waits for what comes later would only say that the order is impossible.
bool is_possible(const Program& program) {
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    for (const OpId w : program.ops[i].waits) {
      if (static_cast<std::size_t>(w) >= i) return false;
    }
  }
  return true;
}

TEST(TierFaults, EveryChangeOfOrderOnALaneThatMattersIsNoticed) {
  Tally tally;
  for_each_victim(8, [&](const std::string& name, const StepShape& shape, Programs& programs) {
    const Program sound = programs.train;
    std::array<std::size_t, kLaneCount> last{};
    last.fill(sound.ops.size());
    for (std::size_t i = 0; i < sound.ops.size(); ++i) {
      std::size_t& before = last[static_cast<std::size_t>(sound.ops[i].lane)];
      const std::size_t with = std::exchange(before, i);
      if (with == sound.ops.size()) continue;
      programs.train = moved(sound, with, i);
      if (!is_possible(programs.train)) continue;
      judge(programs, shape,
            name + ", operation " + std::to_string(i) + " before " + std::to_string(with), tally);
      tally.early += sound.ops[i].speculative ? 1 : 0;
      if (testing::Test::HasFatalFailure()) return;
    }
    programs.train = sound;
  });
  // Reductions out of order are refused, though small buckets of one shard might change places.
  EXPECT_GT(tally.shown, tally.tried / 3);
  EXPECT_GT(tally.tried, 20);
  EXPECT_GT(tally.early, 100);
}

TEST(TierFaults, EveryMissingOperationIsNoticed) {
  Tally tally;
  for_each_victim(9, [&](const std::string& name, const StepShape& shape, Programs& programs) {
    const Program sound = programs.train;
    for (std::size_t i = 0; i < sound.ops.size(); ++i) {
      if (sound.ops[i].lane == Lane::kCompute) continue;
      programs.train = sound;
      programs.train.ops.erase(programs.train.ops.begin() + static_cast<std::ptrdiff_t>(i));
      for (Op& op : programs.train.ops) {
        std::erase(op.waits, static_cast<OpId>(i));
        for (OpId& w : op.waits) w -= w > static_cast<OpId>(i) ? 1 : 0;
      }
      judge(programs, shape,
            name + ", operation " + std::to_string(i) +
                " missing: " + std::string(name_of(sound.ops[i].kind)),
            tally);
      tally.early += sound.ops[i].speculative ? 1 : 0;
      if (testing::Test::HasFatalFailure()) return;
    }
    programs.train = sound;
  });
  EXPECT_GT(tally.shown, tally.tried / 2);
  EXPECT_GT(tally.tried, 20);
  EXPECT_GT(tally.early, 100);
}

TEST(TierFaults, EveryWrongSlotIsNoticed) {
  Tally tally;
  for_each_victim(10, [&](const std::string& name, const StepShape& shape, Programs& programs) {
    std::vector<BufferId> alive;
    for (std::size_t i = 0; i < programs.train.ops.size(); ++i) {
      Op& op = programs.train.ops[i];
      for (const BufferId b : op.dead_before) std::erase(alive, b);
      alive.insert(alive.end(), op.live.begin(), op.live.end());
      for (BufferId* slot : {&op.device_slot, &op.host_slot}) {
        if (*slot < 0) continue;
        const BufferId right = *slot;
        const Buffer& there = programs.train.buffers[static_cast<std::size_t>(right)];
        for (const BufferId other : alive) {
          const Buffer& wrong = programs.train.buffers[static_cast<std::size_t>(other)];
          if (other == right || wrong.tier != there.tier || wrong.bytes < there.bytes) continue;
          *slot = other;
          judge(programs, shape, name + ", operation " + std::to_string(i), tally);
        }
        *slot = right;
      }
      for (const BufferId b : op.dead_after) std::erase(alive, b);
    }
    for (Chunk& chunk : programs.train.chunks) {
      const int right = chunk.slot;
      chunk.slot = (right + 1) % std::max(1, programs.train.chunk_slots);
      if (chunk.slot != right) judge(programs, shape, name + ", a chunk's slot", tally);
      chunk.slot = right;
    }
  });
  EXPECT_GT(tally.shown, tally.tried / 2);
  EXPECT_GT(tally.tried, 20);
}

TEST(TierFaults, HostSlotsThatOverlapAreNoticed) {
  int overlaps = 0;
  for_each_victim(11, [&](const std::string& name, const StepShape&, Programs& programs) {
    Program& program = programs.train;
    std::vector<BufferId> alive;
    for (const Op& op : program.ops) {
      for (const BufferId b : op.dead_before) std::erase(alive, b);
      for (const BufferId b : op.live) {
        Buffer& buffer = program.buffers[static_cast<std::size_t>(b)];
        if (buffer.tier != Tier::kHost) continue;
        const std::int64_t right = buffer.arena_offset;
        for (const BufferId other : alive) {
          buffer.arena_offset = program.buffers[static_cast<std::size_t>(other)].arena_offset;
          EXPECT_NE(find_fault(program), "") << name;
          ++overlaps;
        }
        buffer.arena_offset = program.host_arena_bytes - buffer.bytes + 1;
        EXPECT_NE(find_fault(program), "") << name;
        buffer.arena_offset = right;
        alive.push_back(b);
      }
      for (const BufferId b : op.dead_after) std::erase(alive, b);
    }
  });
  EXPECT_GT(overlaps, 100);
}

}  // namespace
}  // namespace sluice
