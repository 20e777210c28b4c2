// What programs with tiers hold and move, against formulas of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "runtime/program/model/memory_model.hpp"
#include "runtime/program/write/step_writer.hpp"
#include "tests/runtime/program/shapes.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kPage = 4096;

// Legal tiers, with dtype, moments, accumulation and order turning as they come.
void for_each_tiers(const std::function<void(const ShapeChoice&, const StepShape&)>& visit) {
  for (int i = 0; i < kPlacements * 4; ++i) {
    ShapeChoice c{.stage = i / kPlacements, .dp = 1 + i % 3, .blocks = 3};
    place(c.placement, i);
    if (!is_legal(c)) continue;
    const bool only_states =
        c.placement.parameters == Tier::kDevice && c.placement.gradients == Tier::kDevice;
    for (int variant = 0; variant < 8; ++variant) {
      c.recompute = variant % 3 == 0;
      c.micro_batches = variant % 2 == 0 ? 1 : 3;
      c.layer_major = variant / 2 % 2 == 0;
      c.dtype = variant / 4 == 0 ? DType::kFloat32 : DType::kBFloat16;
      c.tied = variant % 4 < 2;
      c.persist = variant % 3 == 1;
      c.placement.moments_dtype = variant % 5 < 3 ? DType::kFloat32 : DType::kBFloat16;
      c.placement.chunk_elems = variant % 2 == 0 ? 512 : 1 << 22;
      c.placement.chunk_slots = 1 + variant % 4;
      c.placement.device_fraction = only_states && variant % 3 == 2 ? 0.9 : 0;
      c.host_fraction = variant % 3 == 1 ? 0.4 : 0;
      c.placement.gradients_dtype = DType::kFloat32;
      c.reduce_every = ReduceEvery::kMicroBatch;
      if (variant / 4 == 1 && may_round_gradients(c)) round_gradients(c);
      visit(c, make_shape(c));
    }
  }
}

// What of a group is updated where, and where its parameters are.
struct Away {
  std::int64_t owned = 0;
  std::int64_t there = 0;
  std::int64_t away = 0;
  Tier params = Tier::kDevice;
  int streams = 1;
};

Away split(const StepShape& shape, std::size_t g) {
  const GroupShape& group = shape.groups[g];
  const Placement& p = shape.placement;
  Away a;
  a.owned = shape.stage == 0 ? group.elems : group.shard_elems;
  a.there = p.optimizer == Tier::kDevice
                ? a.owned
                : static_cast<std::int64_t>(p.device_fraction * static_cast<double>(a.owned)) /
                      4096 * 4096;
  a.away = a.owned - a.there;
  if (!group.resident) a.params = p.parameters;
  if (shape.micro_batches > 1 && shape.reduce_every == ReduceEvery::kMicroBatch) {
    a.streams = 0;
    for (const UnitShape& unit : shape.units) {
      a.streams +=
          static_cast<int>(std::count(unit.groups.begin(), unit.groups.end(), static_cast<int>(g)));
    }
  }
  return a;
}

// The optimizer's tier has the low halves of master weights whose bf16 parameters are on the host.
bool has_remainders(const StepShape& shape, const Away& a) {
  return shape.dtype == DType::kBFloat16 && a.params == Tier::kHost;
}

// By tier, bytes of parameters, master weights, moments and gradients.
using TierBytes = std::array<std::int64_t, 3>;

TierBytes state_bytes(const StepShape& shape) {
  TierBytes bytes{};
  const auto add = [&](Tier tier, std::int64_t b) {
    bytes[static_cast<std::size_t>(tier)] +=
        tier == Tier::kNvme ? (b + kPage - 1) / kPage * kPage : b;
  };
  const bool bf16 = shape.dtype != DType::kFloat32;
  const Placement& p = shape.placement;
  for (std::size_t g = 0; g < shape.groups.size(); ++g) {
    const GroupShape& group = shape.groups[g];
    const Away a = split(shape, g);
    add(a.params, (group.resident ? group.elems : group.shard_elems) * (bf16 ? 2 : 4));
    // On the device bf16 parameters there are a half of the master weights.
    const std::int64_t master = !bf16 ? 0 : a.params == Tier::kDevice ? 2 : 4;
    add(Tier::kDevice, a.there * (master + 2 * size_of(p.moments_dtype)));
    const Tier tier = group.states_on_host ? Tier::kHost : p.optimizer;
    const bool own_master = bf16 || a.params != tier;
    if (own_master) add(tier, a.away * (has_remainders(shape, a) ? 2 : 4));
    for (int moment = 0; moment < 2; ++moment) {
      add(tier, a.away * (p.moments_dtype == DType::kFloat32 ? 4 : 2));
    }
    if (shape.stage < 2) add(Tier::kDevice, group.elems * 4);
    if (shape.stage < 2 && shape.micro_batches == 1) continue;
    for (int s = 0; s < a.streams; ++s) {
      add(p.gradients, group.shard_elems * size_of(p.gradients_dtype));
    }
  }
  return bytes;
}

// Of one slot of the ring.
std::int64_t ring_bytes(const StepShape& shape) {
  const Placement& p = shape.placement;
  if (p.optimizer == Tier::kDevice) return 0;
  std::int64_t n = 0;
  int streams = 1;
  bool weights_leave = false;
  for (std::size_t g = 0; g < shape.groups.size(); ++g) {
    const Away a = split(shape, g);
    n = std::max(n, a.away);
    streams = std::max(streams, a.streams);
    weights_leave = weights_leave || a.params != Tier::kHost;
  }
  n = std::min(n, p.chunk_elems);
  const auto pages = [](std::int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; };
  std::int64_t bytes = 0;
  if (p.optimizer == Tier::kNvme) {
    bytes += pages(4 * n) + 2 * pages(n * (p.moments_dtype == DType::kFloat32 ? 4 : 2));
  }
  if (shape.dtype == DType::kBFloat16 && weights_leave) bytes += pages(2 * n);
  if (p.gradients == Tier::kDevice) bytes += pages(4 * n);
  if (p.gradients == Tier::kNvme) bytes += pages(size_of(p.gradients_dtype) * n) * streams;
  return bytes;
}

// A unit's input, and what else its backward needs, if that can move.
std::int64_t leaves_with(const StepShape& shape, std::size_t u) {
  const std::int64_t input = shape.units[u - 1].memory.output;
  if (shape.recompute) return input;
  return shape.units[u].kept_moves ? input + shape.units[u].memory.kept : 0;
}

std::int64_t input_bytes_on_disk(const StepShape& shape) {
  if (shape.placement.activations != Tier::kNvme) return 0;
  std::int64_t bytes = 0;
  for (std::size_t u = 1; u + 2 < shape.units.size(); ++u) {
    const std::int64_t input = leaves_with(shape, u);
    bytes += (input + kPage - 1) / kPage * kPage * (shape.layer_major ? shape.micro_batches : 1);
  }
  return bytes;
}

TEST(TierMemory, PersistentBytesOfEachTier) {
  int seen = 0;
  for_each_tiers([&](const ShapeChoice& choice, const StepShape& shape) {
    const Program program = write_train_step(shape);
    TierBytes expected = state_bytes(shape);
    expected[0] += shape.comm_staging_bytes + shape.constant_bytes;
    expected[1] += ring_bytes(shape) * shape.placement.chunk_slots;
    expected[2] += input_bytes_on_disk(shape);
    for (const Tier tier : kAllTiers) {
      ASSERT_EQ(add_up(program, tier).persistent, expected[static_cast<std::size_t>(tier)])
          << name_of(choice) << ", tier " << static_cast<int>(tier);
    }
    ASSERT_EQ(program.chunk_slots > 0, ring_bytes(shape) > 0 && !program.chunks.empty())
        << name_of(choice);
    ++seen;
  });
  EXPECT_EQ(seen, 96 * 8);
}

// Nothing of the device's is left where everything is elsewhere: what is gathered comes and goes.
TEST(TierMemory, EverythingOnNvmeLeavesTheDeviceEmptyBetweenSteps) {
  ShapeChoice choice{.stage = 3, .recompute = true};
  choice.placement = {.optimizer = Tier::kNvme,
                      .parameters = Tier::kNvme,
                      .gradients = Tier::kNvme,
                      .activations = Tier::kNvme};
  const StepShape shape = make_shape(choice);
  EXPECT_EQ(add_up(write_train_step(shape)).persistent, shape.comm_staging_bytes);
}

std::int64_t moved(const Program& program, OpKind kind) {
  std::int64_t bytes = 0;
  for (const Op& op : program.ops) bytes += op.kind == kind ? op.moved_bytes : 0;
  return bytes;
}

TEST(TierMemory, MovedBytesAreTheTheorys) {
  for_each_tiers([](const ShapeChoice& choice, const StepShape& shape) {
    const Placement& p = shape.placement;
    const Program program = write_train_step(shape);
    std::int64_t away = 0;
    std::int64_t disk_states = 0;
    std::int64_t to_device = 0;
    std::int64_t to_disk = 0;
    std::int64_t shards = 0;
    for (std::size_t g = 0; g < shape.groups.size(); ++g) {
      const Away a = split(shape, g);
      away += a.away;
      const Tier tier = shape.groups[g].states_on_host ? Tier::kHost : p.optimizer;
      if (tier == Tier::kNvme) {
        disk_states +=
            a.away * (has_remainders(shape, a) ? 2 : 4) + 2 * a.away * size_of(p.moments_dtype);
      }
      const bool states_have_them = choice.dtype == DType::kFloat32 && a.params == tier;
      if (a.params == Tier::kDevice) to_device += a.away;
      if (a.params == Tier::kNvme && !states_have_them) to_disk += a.away;
      shards += shape.groups[g].shard_elems * a.streams * size_of(p.gradients_dtype);
    }
    const std::int64_t element = size_of(choice.dtype);
    ASSERT_EQ(moved(program, OpKind::kReadStates), disk_states);
    ASSERT_EQ(moved(program, OpKind::kWriteStates), disk_states);
    ASSERT_EQ(moved(program, OpKind::kCopyParams), to_device * element) << name_of(choice);
    ASSERT_EQ(moved(program, OpKind::kWriteParams), to_disk * element) << name_of(choice);
    const bool from_device = p.gradients == Tier::kDevice && p.optimizer != Tier::kDevice;
    ASSERT_EQ(moved(program, OpKind::kCopyGrads), from_device ? away * 4 : 0);
    const bool leave = p.gradients != Tier::kDevice;
    const bool disk = p.gradients == Tier::kNvme;
    const int sums = choice.reduce_every == ReduceEvery::kStep ? 1 : choice.micro_batches;
    ASSERT_EQ(moved(program, OpKind::kStoreGrads), leave ? shards * sums : 0) << name_of(choice);
    ASSERT_EQ(moved(program, OpKind::kWriteBucket), disk ? shards * sums : 0) << name_of(choice);
    ASSERT_EQ(moved(program, OpKind::kReadBucket), disk ? shards * (sums - 1) : 0);
    // Once for the norm, once for the update.
    ASSERT_EQ(moved(program, OpKind::kReadGrads), disk ? shards * 2 : 0) << name_of(choice);
    std::int64_t inputs = 0;
    for (std::size_t u = 1; u + 2 < shape.units.size(); ++u) {
      inputs += leaves_with(shape, u) * choice.micro_batches;
    }
    if (p.activations == Tier::kDevice) inputs = 0;
    ASSERT_EQ(moved(program, OpKind::kSaveInput), inputs);
    ASSERT_EQ(moved(program, OpKind::kFetchInput), inputs);
    const std::int64_t disk_inputs = p.activations == Tier::kNvme ? inputs : 0;
    ASSERT_EQ(moved(program, OpKind::kWriteInput), disk_inputs);
    ASSERT_EQ(moved(program, OpKind::kReadInput), disk_inputs);
  });
}

TEST(TierMemory, TheHostArenaHoldsWhatIsAliveThereAndLittleMore) {
  double worst = 1;
  for_each_tiers([&](const ShapeChoice& choice, const StepShape& shape) {
    const Program program = write_train_step(shape);
    std::int64_t alive = 0;
    std::int64_t most = 0;
    const auto change = [&](const std::vector<BufferId>& ids, int sign) {
      for (const BufferId id : ids) {
        const Buffer& buffer = program.buffers[static_cast<std::size_t>(id)];
        if (buffer.tier != Tier::kHost) continue;
        ASSERT_TRUE(buffer.in_arena);
        ASSERT_EQ(buffer.arena_offset % kPage, 0);
        alive += sign * ((buffer.bytes + kPage - 1) / kPage * kPage);
      }
    };
    for (const Op& op : program.ops) {
      change(op.dead_before, -1);
      change(op.live, +1);
      most = std::max(most, alive);
      change(op.dead_after, -1);
    }
    ASSERT_GE(program.host_arena_bytes, most) << name_of(choice);
    ASSERT_EQ(program.host_arena_bytes == 0, most == 0) << name_of(choice);
    ASSERT_EQ(add_up(program, Tier::kHost).arena, program.host_arena_bytes);
    ASSERT_EQ(add_up(program, Tier::kNvme).arena, 0);
    if (most > 0) {
      worst = std::max(worst,
                       static_cast<double>(program.host_arena_bytes) / static_cast<double>(most));
    }
  });
  EXPECT_LE(worst, 1.25);
}

}  // namespace
}  // namespace sluice
