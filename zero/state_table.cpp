#include "zero/state_table.hpp"

#include <algorithm>
#include <array>

#include "base/bytes.hpp"
#include "base/index.hpp"
#include "offload/image_size.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kHashBytes = 8;

std::int64_t pages(std::int64_t bytes) { return round_up(bytes, kPage); }

// True if copies to or from the device touch host blocks of the tag. Moments stay on the host.
// Master weights are copied only in fp32, where parameters have no other source.
bool is_copied(Tag tag, DType dtype) {
  return tag != Tag::kMoments && (tag != Tag::kMaster || dtype == DType::kFloat32);
}

class TableWriter {
 public:
  TableWriter(const ShardShape& shape, const HeldArrays& held) : shape_(shape), held_(held) {}

  StateTable write() {
    const int groups = static_cast<int>(shape_.groups.size());
    for (int g = 0; g < groups; ++g) {
      add_parameters(g);
      if (is_frozen(shape_, g)) continue;
      add_states(g);
      add_gradients(g);
    }
    for (const SecondPlace& place : held_.second_places) add_second_place(place);
    add_of_rank();
    lay_out();
    return std::move(table_);
  }

 private:
  StateRow& add(StateRow row) {
    table_.rows.push_back(row);
    return table_.rows.back();
  }

  void add_parameters(int g) {
    if (rounds_master(shape_, g)) return;
    const GroupShape& group = nth(shape_.groups, g);
    add({.array = group.resident ? StateArray::kFullParameters : StateArray::kParameterShard,
         .tag = Tag::kParameters,
         .tier = parameter_tier(shape_, g),
         .dtype = shape_.dtype,
         .group = g,
         .elems = group.resident ? group.elems : group.shard_elems,
         .element_bytes = size_of(shape_.dtype)});
  }

  void add_state(int g, StateKind state, Tier tier, std::int64_t first, std::int64_t elems,
                 DType dtype) {
    if (elems == 0) return;
    add({.array = StateArray::kState,
         .tag = state == StateKind::kMaster ? Tag::kMaster : Tag::kMoments,
         .tier = tier,
         .dtype = dtype,
         .state = state,
         .group = g,
         .elems = elems,
         .first = first,
         .element_bytes = size_of(dtype)});
  }

  void add_remainders(int g, Tier tier, std::int64_t elems) {
    if (elems == 0) return;
    add({.array = StateArray::kRemainder,
         .tag = Tag::kMaster,
         .tier = tier,
         .group = g,
         .elems = elems,
         .element_bytes = 2});
  }

  // fp32 parameters on the device are their own master weights, for any device_fraction.
  void add_states(int g) {
    const std::int64_t on_device = device_elems(shape_, g);
    const std::int64_t off_device = off_device_elems(shape_, g);
    const Tier tier = optimizer_tier(shape_, g);
    constexpr DType kWide = DType::kFloat32;
    if (keeps_device_remainders(shape_, g)) {
      add_remainders(g, Tier::kDevice, on_device);
    } else if (shape_.dtype != kWide) {
      add_state(g, StateKind::kMaster, Tier::kDevice, 0, on_device, kWide);
    }
    if (keeps_remainders(shape_, g)) {
      add_remainders(g, tier, off_device);
    } else if (!params_are_master(shape_, g)) {
      add_state(g, StateKind::kMaster, tier, on_device, off_device, kWide);
    }
    const DType moments = shape_.placement.moments_dtype;
    for (const StateKind moment : rule_of(shape_.optimizer).moment_kinds()) {
      add_state(g, moment, Tier::kDevice, 0, on_device, moments);
      add_state(g, moment, tier, on_device, off_device, moments);
    }
  }

  void add_gradients(int g) {
    const GroupShape& group = nth(shape_.groups, g);
    if (group.passing_gradient_bytes > 0) return;
    StateRow row{.tag = Tag::kGradients, .group = g};
    if (keeps_full_gradients(shape_) && !group.rounds_gradients) {
      row.array = StateArray::kFullGradients;
      row.elems = group.elems;
      add(row);
    }
    if (!has_gradient_shard(shape_) && !group.rounds_gradients) return;
    row.array = StateArray::kGradientShard;
    row.tier = shape_.placement.gradients;
    row.dtype = gradient_dtype(shape_, g);
    row.element_bytes = size_of(row.dtype);
    row.elems = group.shard_elems;
    for (row.stream = 0; row.stream < nth(held_.gradient_streams, g); ++row.stream) {
      add(row);
    }
  }

  // Adds second places to the group's rows that updates write: states, and parameters on NVMe or
  // beside remainders.
  void add_second_place(const SecondPlace& place) {
    const Tier tier = optimizer_tier(shape_, place.group);
    for (StateRow& row : table_.rows) {
      const bool state = row.array == StateArray::kState || row.array == StateArray::kRemainder;
      const bool params =
          row.array == StateArray::kParameterShard &&
          (has_second_params(shape_, row.group) || keeps_remainders(shape_, row.group));
      if (row.group != place.group || !((state && row.tier == tier) || params)) continue;
      row.second_first = place.begin - row.first;
      row.second_elems = place.elems;
    }
  }

  void add_bytes(StateArray array, Tag tag, Tier tier, std::int64_t bytes) {
    if (bytes > 0)
      add({.array = array, .tag = tag, .tier = tier, .elems = bytes, .element_bytes = 1});
  }

  void add_of_rank() {
    add_bytes(StateArray::kConstants, Tag::kParameters, Tier::kDevice, held_.constant_bytes);
    add_bytes(StateArray::kLibraries, Tag::kWorkspace, Tier::kDevice, held_.library_bytes);
    add_bytes(StateArray::kCommStaging, Tag::kCommStaging, Tier::kDevice, held_.comm_staging_bytes);
    add_bytes(StateArray::kReplicaStaging, Tag::kCommStaging, Tier::kDevice,
              held_.replica_staging_bytes);
    add_bytes(StateArray::kRing, Tag::kStateStaging, Tier::kHost, held_.ring_bytes);
    for (const HeldArrays::Input& input : held_.inputs) {
      for (int flight = 0; flight < input.flights && input.bytes > 0; ++flight) {
        add({.array = StateArray::kInput,
             .tag = Tag::kActivations,
             .tier = Tier::kNvme,
             .unit = input.unit,
             .flight = flight,
             .elems = input.bytes,
             .element_bytes = 1});
      }
    }
    // An image has two records, written in turn. A record is in memory while it is written.
    const std::int64_t record =
        keeps_image(shape_.placement) ? image_record_bytes(shape_, held_.second_places) : 0;
    for (int r = 0; r < 2; ++r) {
      add_bytes(StateArray::kImageRecord, Tag::kImage, Tier::kNvme, record);
    }
    add_bytes(StateArray::kBounce, Tag::kBounce, Tier::kHost, held_.bounce_bytes);
    if (uses_nvme(shape_.placement) && held_.store.queue_depth > 0) {
      add_bytes(StateArray::kNvmeStore, Tag::kNvmeStore, Tier::kHost, store_bytes() + record);
    }
  }

  std::int64_t store_bytes() const {
    const StoreShape& store = held_.store;
    const std::int64_t grain = shape_.placement.grain_bytes;
    std::int64_t grains = 0;
    for (const StateRow& row : table_.rows) {
      if (row.tier != Tier::kNvme || !store.checksums) continue;
      grains += round_up(row.bytes(), grain) / grain + round_up(row.second_bytes(), grain) / grain;
    }
    return store.queue_depth * grain + grains * kHashBytes;
  }

  // Rows of one kind, tag, tier and dtype share a block. Collectives send parameters and full
  // gradients, and in stage 0 reduced gradients. Units, libraries, sums over replicas and the store
  // allocate their own memory.
  void lay_out() {
    for (StateRow& row : table_.rows) {
      if (row.tier == Tier::kNvme) continue;
      const StateBlock block = block_of(row);
      const auto same = [&](const StateBlock& other) {
        return other.array == block.array && other.tag == block.tag && other.tier == block.tier &&
               other.dtype == block.dtype;
      };
      auto at = std::find_if(table_.blocks.begin(), table_.blocks.end(), same);
      if (at == table_.blocks.end()) at = table_.blocks.insert(at, block);
      row.block = static_cast<int>(at - table_.blocks.begin());
      row.offset_bytes = at->bytes;
      at->bytes += row.tier_bytes();
    }
  }

  StateBlock block_of(const StateRow& row) const {
    const bool whole = owns_whole_groups(shape_);
    const StateArray array = row.array;
    const bool sent = array == StateArray::kFullParameters ||
                      array == StateArray::kParameterShard || array == StateArray::kFullGradients ||
                      (array == StateArray::kGradientShard && whole);
    const bool reserved = array == StateArray::kConstants || array == StateArray::kLibraries ||
                          array == StateArray::kReplicaStaging || array == StateArray::kNvmeStore;
    return {.array = array,
            .tag = row.tag,
            .tier = row.tier,
            .dtype = row.dtype,
            .element_bytes = row.element_bytes,
            .collective = row.tier == Tier::kDevice && sent,
            .copied = row.tier == Tier::kHost && !reserved && is_copied(row.tag, shape_.dtype),
            .reserved = reserved};
  }

  const ShardShape& shape_;
  const HeldArrays& held_;
  StateTable table_;
};

}  // namespace

std::int64_t StateRow::tier_bytes() const {
  return tier == Tier::kNvme ? pages(bytes()) + pages(second_bytes()) : bytes() + second_bytes();
}

std::int64_t StateBlock::tier_bytes() const {
  return tier == Tier::kHost && !reserved ? pages(bytes) : bytes;
}

std::int64_t StateTable::bytes(Tier tier) const {
  std::int64_t sum = 0;
  for (const StateRow& row : rows) sum += row.tier == tier ? row.tier_bytes() : 0;
  return sum;
}

std::int64_t StateTable::bytes(Tier tier, Tag tag) const {
  std::int64_t sum = 0;
  for (const StateRow& row : rows) {
    sum += row.tier == tier && row.tag == tag ? row.tier_bytes() : 0;
  }
  return sum;
}

std::int64_t StateTable::second_bytes(Tier tier) const {
  std::int64_t sum = 0;
  for (const StateRow& row : rows) sum += row.tier == tier ? row.second_bytes() : 0;
  return sum;
}

std::int64_t StateTable::page_end_bytes() const {
  std::int64_t sum = 0;
  for (const StateBlock& block : blocks) sum += block.tier_bytes() - block.bytes;
  return sum;
}

const StateRow* StateTable::find(int group, StateArray array, Tier tier) const {
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const StateRow& r) {
    return r.group == group && r.array == array && r.tier == tier;
  });
  return row == rows.end() ? nullptr : &*row;
}

const StateRow* StateTable::find(int group, StateKind state, Tier tier) const {
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const StateRow& r) {
    return r.group == group && r.array == StateArray::kState && r.state == state && r.tier == tier;
  });
  return row == rows.end() ? nullptr : &*row;
}

StateTable write_state_table(const ShardShape& shape, const HeldArrays& held) {
  return TableWriter(shape, held).write();
}

std::int64_t image_record_bytes(const ShardShape& shape, std::span<const SecondPlace> places) {
  const std::int64_t grain = shape.placement.grain_bytes;
  std::int64_t grains = 0;
  const auto add = [&](std::int64_t bytes) { grains += round_up(bytes, grain) / grain; };
  for (const SecondPlace& place : places) {
    if (parameter_tier(shape, place.group) == Tier::kNvme) add(place.elems * size_of(shape.dtype));
    if (!params_are_master(shape, place.group)) add(place.elems * 4);
    for (int moment = 0; moment < moments_of(shape); ++moment) {
      add(place.elems * size_of(shape.placement.moments_dtype));
    }
  }
  return grains > 0 ? image_record_bytes(grains) : 0;
}

std::string name_of(const StateRow& row, const std::string& group) {
  switch (row.array) {
    case StateArray::kFullParameters:
    case StateArray::kParameterShard:
      return group + ".params";
    case StateArray::kState:
      return group + "." + std::string(name_of(row.state));
    case StateArray::kRemainder:
      return group + ".remainder";
    case StateArray::kFullGradients:
      return group + ".full_grads";
    case StateArray::kGradientShard:
      return group + ".grads" + std::to_string(row.stream);
    case StateArray::kInput:
      return "input." + std::to_string(row.unit) + "." + std::to_string(row.flight);
    default:
      return std::string(name_of(row.tag));
  }
}

}  // namespace sluice
