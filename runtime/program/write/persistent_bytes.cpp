#include "runtime/program/write/persistent_bytes.hpp"

#include <array>

#include "base/bytes.hpp"
#include "runtime/program/write/arena_plan.hpp"
#include "runtime/program/write/update_flow.hpp"
#include "runtime/program/write/use_order.hpp"

namespace sluice {
namespace {

// Sums arrays by tag and tier.
class Table {
 public:
  explicit Table(std::int64_t grain_bytes) : grain_bytes_(grain_bytes) {}
  void add(Tag tag, Tier tier, std::int64_t bytes) {
    if (tier != Tier::kNvme) {
      at(tag, tier).bytes += bytes;
      return;
    }
    at(tag, tier).bytes += round_up(bytes, kHostAlignBytes);
    at(tag, tier).grains += round_up(bytes, grain_bytes_) / grain_bytes_;
  }
  std::vector<Persistent> list() const {
    std::vector<Persistent> rows;
    for (std::size_t tier = 0; tier < sums_.size(); ++tier) {
      for (std::size_t tag = 0; tag < kTagCount; ++tag) {
        const auto [bytes, grains] = sums_[tier][tag];
        if (bytes == 0) continue;
        rows.push_back({static_cast<Tag>(tag), bytes, static_cast<Tier>(tier), grains});
      }
    }
    return rows;
  }

 private:
  struct Sum {
    std::int64_t bytes = 0, grains = 0;
  };
  Sum& at(Tag tag, Tier tier) {
    return sums_[static_cast<std::size_t>(tier)][static_cast<std::size_t>(tag)];
  }
  const std::int64_t grain_bytes_;
  std::array<std::array<Sum, kTagCount>, kTierCount> sums_{};
};

void add_states(Table& table, const StepShape& shape, int g) {
  const std::int64_t there = device_elems(shape, g);
  const std::int64_t away = owned_elems(shape, g) - there;
  // On the device fp32 parameters are their own master weights, whatever share is updated there.
  if (shape.dtype != DType::kFloat32) table.add(Tag::kMaster, Tier::kDevice, there * 4);
  table.add(Tag::kMoments, Tier::kDevice, there * 4);
  table.add(Tag::kMoments, Tier::kDevice, there * 4);
  if (away == 0) return;
  const Tier tier = shape.placement.optimizer;
  if (!params_are_master(shape, g)) table.add(Tag::kMaster, tier, away * 4);
  for (int moment = 0; moment < 2; ++moment) {
    table.add(Tag::kMoments, tier, away * size_of(shape.placement.moments_dtype));
  }
}

// Calls on(tag, bytes) for each array of a second place.
template <class F>
void each_array(const StepShape& shape, const SecondPlace& place, const F& on) {
  if (parameter_tier(shape, place.group) == Tier::kNvme) {
    on(Tag::kParameters, place.elems * size_of(shape.dtype));
  }
  if (!params_are_master(shape, place.group)) on(Tag::kMaster, place.elems * 4);
  for (int moment = 0; moment < 2; ++moment) {
    on(Tag::kMoments, place.elems * size_of(shape.placement.moments_dtype));
  }
}

void add_gradients(Table& table, const StepShape& shape, int g) {
  const GroupShape& group = shape.groups[static_cast<std::size_t>(g)];
  if (shape.stage < 2) table.add(Tag::kGradients, Tier::kDevice, group.elems * 4);
  if (!has_gradient_shard(shape)) return;
  for (int s = 0; s < gradient_streams(shape, g); ++s) {
    table.add(Tag::kGradients, shape.placement.gradients, group.shard_elems * 4);
  }
}

}  // namespace

std::int64_t image_bytes(const StepShape& shape, std::span<const Chunk> chunks) {
  std::int64_t grains = 0;
  const std::int64_t grain = shape.placement.grain_bytes;
  for (const SecondPlace& place : second_places(chunks)) {
    each_array(shape, place,
               [&](Tag, std::int64_t bytes) { grains += round_up(bytes, grain) / grain; });
  }
  return grains > 0 ? image_record_bytes(grains) : 0;
}

std::vector<Persistent> list_persistent(const StepShape& shape, std::span<const Chunk> chunks) {
  Table table(shape.placement.grain_bytes);
  const std::int64_t element_bytes = size_of(shape.dtype);
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    const GroupShape& group = shape.groups[static_cast<std::size_t>(g)];
    const std::int64_t params = group.resident ? group.elems : group.shard_elems;
    table.add(Tag::kParameters, parameter_tier(shape, g), params * element_bytes);
    if (shape.frozen) continue;
    add_states(table, shape, g);
    add_gradients(table, shape, g);
  }
  for (const SecondPlace& place : second_places(chunks)) {
    each_array(shape, place,
               [&](Tag tag, std::int64_t bytes) { table.add(tag, Tier::kNvme, bytes); });
  }
  // Two records of an image, in turns.
  const std::int64_t record = shape.placement.image ? image_bytes(shape, chunks) : 0;
  for (int r = 0; r < 2; ++r) table.add(Tag::kImage, Tier::kNvme, record);
  table.add(Tag::kParameters, Tier::kDevice, shape.constant_bytes);
  table.add(Tag::kWorkspace, Tier::kDevice, shape.library_bytes);
  table.add(Tag::kCommStaging, Tier::kDevice, shape.comm_staging_bytes);
  table.add(Tag::kStateStaging, Tier::kHost,
            chunk_layout(shape).bytes * shape.placement.chunk_slots);
  // Inputs on NVMe: an extent for each unit that sends its input away, each micro-batch in flight.
  for (int u = 0; u < static_cast<int>(shape.units.size()); ++u) {
    if (shape.placement.activations != Tier::kNvme) break;
    for (int m = 0; m < input_extents(shape); ++m) {
      table.add(Tag::kActivations, Tier::kNvme, leaving_bytes(shape, u));
    }
  }
  return table.list();
}

}  // namespace sluice
