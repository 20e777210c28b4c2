#include "runtime/checkpoint/import/deepspeed_shards.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/index.hpp"
#include "runtime/checkpoint/format/range_plan.hpp"
#include "runtime/checkpoint/import/import_files.hpp"

namespace sluice {
namespace {

using Kind = PickleValue::Kind;

constexpr std::int64_t kMostElems = std::int64_t{1} << 47;  // no sum of accepted sizes overflows
constexpr std::array<const char*, 3> kStates{"fp32", "exp_avg", "exp_avg_sq"};

bool is_sequence(const PickleValue& value) {
  return value.kind == Kind::kList || value.kind == Kind::kTuple;
}

}  // namespace

std::vector<std::int64_t> pickled_shape(const TorchFile& file, const PickleValue& value,
                                        const std::string& name) {
  std::vector<std::int64_t> shape;
  std::int64_t elems = 1;
  bool good = is_sequence(value);
  for (std::size_t i = 0; good && i < value.items.size(); ++i) {
    const PickleValue& dim = file.tree().at(value.items[i]);
    good = dim.kind == Kind::kInt && dim.number > 0 &&
           !__builtin_mul_overflow(elems, dim.number, &elems) && elems <= kMostElems;
    shape.push_back(dim.number);
  }
  if (good) return shape;
  throw CheckpointError("holds " + kind_text(value) + " that is no shape of a parameter",
                        file.path(), name, value.at);
}

std::int64_t stage3_part(std::int64_t elems, int world) { return (elems + world - 1) / world; }

DeepSpeedShards::DeepSpeedShards(const DeepSpeedFiles& files, bool weights_only,
                                 std::int64_t updates)
    : files_(files), ranks_(files.optimizers.size()) {
  read_params();
  for (int rank = 0; rank < files_.world(); ++rank) {
    read_weights(rank);
    if (!weights_only) read_moments(rank, updates);
  }
  if (files_.stage3) {
    place_stage3();
  } else {
    for (std::size_t group = 0; group < listed_.size(); ++group) place_group(group);
  }
}

CheckpointError DeepSpeedShards::error(int rank, const std::string& what, const std::string& tensor,
                                       const PickleValue& at) const {
  return {what, nth(files_.optimizers, rank)->path(), tensor, at.at};
}

const PickleValue* DeepSpeedShards::find(int rank, const PickleValue& in,
                                         std::string_view key) const {
  return nth(files_.optimizers, rank)->tree().find(in, key);
}

const DeepSpeedShards::Flat& DeepSpeedShards::part(int rank, std::size_t group,
                                                   std::size_t kind) const {
  return nth(ranks_, rank)[group][kind];
}

// A list of dictionaries {name: shape}, by group.
void DeepSpeedShards::read_params() {
  const TorchFile& file = *files_.models[0];
  const PickleValue* const shapes = file.tree().find(file.root(), "param_shapes");
  const bool one = shapes != nullptr && shapes->kind == Kind::kDict;  // of the first versions
  if (shapes == nullptr || (!one && !is_sequence(*shapes))) {
    throw CheckpointError("holds no param_shapes, which order the parameters of ZeRO's shards",
                          file.path(), "", file.root().at);
  }
  std::vector<const PickleValue*> groups{shapes};
  if (!one) groups.clear();
  for (std::size_t i = 0; !one && i < shapes->items.size(); ++i) {
    groups.push_back(&file.tree().at(shapes->items[i]));
  }
  for (const PickleValue* const group : groups) {
    listed_.emplace_back();
    for (std::size_t i = 0; group->kind == Kind::kDict && i + 1 < group->items.size(); i += 2) {
      const std::string& name = file.tree().at(group->items[i]).text;
      const PickleValue& value = file.tree().at(group->items[i + 1]);
      Param param;
      param.shape = pickled_shape(file, value, name);
      param.elems = element_count(param.shape);
      if (!params_.emplace(name, std::move(param)).second) {
        throw CheckpointError("is listed twice in param_shapes", file.path(), name, value.at);
      }
      listed_.back().push_back(name);
      names_.push_back(name);
    }
  }
}

// A flat tensor of a rank. Vectors of stride 1 alone: their elements are bytes of the file.
DeepSpeedShards::Flat DeepSpeedShards::flat(int rank, const PickleValue* value,
                                            const std::string& what) const {
  const TorchFile& file = *nth(files_.optimizers, rank);
  if (value != nullptr && value->kind == Kind::kTensor) {
    const PickleTensor& tensor = file.tensor(*value);
    if (tensor.shape.size() == 1 && (tensor.strides[0] == 1 || tensor.shape[0] <= 1)) {
      return {value, tensor.shape[0]};
    }
  }
  const PickleValue& at = value == nullptr ? files_.states(rank) : *value;
  throw error(rank,
              "holds " + (value == nullptr ? "none" : kind_text(*value)) +
                  " where a flat tensor is expected",
              what, at);
}

void DeepSpeedShards::read_weights(int rank) {
  const char* const key = files_.stage3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups";
  const PickleValue& list = *find(rank, files_.states(rank), key);
  if (!is_sequence(list)) throw error(rank, "holds no list of groups", key, list);
  for (const PickleId id : list.items) {
    Group group;
    group[0] = flat(rank, &nth(files_.optimizers, rank)->tree().at(id), key);
    nth(ranks_, rank).push_back(group);
  }
  const std::size_t groups = files_.stage3 ? ranks_[0].size() : listed_.size();
  if (list.items.size() == groups) return;
  throw error(rank,
              format_text("holds {} groups, and {} has {}", list.items.size(),
                          (files_.stage3 ? files_.optimizers : files_.models)[0]->path(), groups),
              key, list);
}

void DeepSpeedShards::read_moments(int rank, std::int64_t updates) {
  const char* const key = files_.stage3 ? "optimizer_state_dict" : "base_optimizer_state";
  const PickleValue* const base = find(rank, files_.states(rank), key);
  if (base != nullptr && base->kind == Kind::kList) {
    throw error(rank,
                "is of an elastic checkpoint, which is not read; load it in DeepSpeed with "
                "zero_optimization.elastic_checkpoint: false, and save again",
                key, *base);
  }
  const PickleValue* const states = base == nullptr ? nullptr : find(rank, *base, "state");
  if (states == nullptr || states->kind != Kind::kDict) {
    throw error(rank, std::string("holds no optimizer states") + kWeightsAlone, key,
                files_.states(rank));
  }
  std::map<std::int64_t, const PickleValue*> by_group;
  const PickleTree& tree = nth(files_.optimizers, rank)->tree();
  for (std::size_t i = 0; i + 1 < states->items.size(); i += 2) {
    const PickleValue& number = tree.at(states->items[i]);
    if (number.kind == Kind::kInt) by_group[number.number] = &tree.at(states->items[i + 1]);
  }
  if (rank == 0) moments_ = !by_group.empty();
  if (by_group.empty() && !moments_ && updates == 0) return;
  if (rank > 0 && !moments_) {
    throw error(rank, "holds optimizer states, and rank 0's file none: two saves are mixed", key,
                *states);
  }
  for (std::size_t group = 0; group < nth(ranks_, rank).size(); ++group) {
    const auto found = by_group.find(static_cast<std::int64_t>(group));
    for (std::size_t kind = 1; kind < kStates.size(); ++kind) {
      const PickleValue* const moment =
          found == by_group.end() ? nullptr : tree.find(*found->second, kStates[kind]);
      if (moment == nullptr) {
        throw error(rank,
                    format_text("holds no {} of group {}{}", kStates[kind], group, kWeightsAlone),
                    key, *states);
      }
      nth(ranks_, rank)[group][kind] = flat(rank, moment, kStates[kind]);
    }
    read_step(rank, group, *found->second, *base);
  }
}

// The count of a group's states, else of the optimizer's groups. The latter counts the updates of
// all groups in ZeRO-3, where the run's own counters are better.
void DeepSpeedShards::read_step(int rank, std::size_t group, const PickleValue& state,
                                const PickleValue& base) {
  TorchFile& file = *nth(files_.optimizers, rank);
  const PickleValue* step = find(rank, state, "step");
  const PickleValue* const groups = find(rank, base, "param_groups");
  if (step == nullptr && !files_.stage3 && groups != nullptr && groups->kind == Kind::kList &&
      group < groups->items.size()) {
    step = find(rank, file.tree().at(groups->items[group]), "step");
  }
  const std::int64_t count = step == nullptr ? -1 : updates_of(file, *step);
  if (rank == 0) steps_.push_back(count);
  if (steps_[group] == count) return;
  throw error(rank,
              format_text("is of {} updates, and {} of {}: two saves are mixed", count,
                          files_.optimizers[0]->path(), steps_[group]),
              "step", step == nullptr ? state : *step);
}

std::int64_t DeepSpeedShards::updates() const {
  return steps_.empty() ? -1 : *std::max_element(steps_.begin(), steps_.end());
}

// Elements of padding behind each parameter of a group. DeepSpeed states them since 0.19.7.
std::vector<std::int64_t> DeepSpeedShards::paddings(std::size_t group) const {
  std::vector<std::int64_t> found(listed_[group].size(), 0);
  const PickleTree& tree = files_.optimizers[0]->tree();
  const PickleValue* const all = find(0, files_.states(0), "param_alignment_paddings");
  if (all == nullptr) return found;
  const bool has = is_sequence(*all) && group < all->items.size();
  const PickleValue& stated = has ? tree.at(all->items[group]) : *all;
  bool good = has && is_sequence(stated) && stated.items.size() == found.size();
  for (std::size_t i = 0; good && i < found.size(); ++i) {
    const PickleValue& value = tree.at(stated.items[i]);
    good = value.kind == Kind::kInt && value.number >= 0 && value.number <= kMostElems;
    found[i] = value.number;
  }
  if (good) return found;
  throw error(0,
              format_text("holds no padding for each of the {} parameters of group {}",
                          found.size(), group),
              "param_alignment_paddings", stated);
}

void DeepSpeedShards::place_group(std::size_t group) {
  const std::vector<std::int64_t> behind = paddings(group);
  std::int64_t elems = 0;
  for (std::size_t i = 0; i < behind.size(); ++i) {
    Param& param = params_.at(listed_[group][i]);
    param.group = group;
    param.at = elems;
    elems = std::min(kMostElems, elems + param.elems + behind[i]);
  }
  for (int rank = 0; rank < files_.world(); ++rank) {
    check_part(rank, group, elems);
    check_mapping(rank, group);
  }
}

// Every rank has the elements of one partition. The last ones may go without their padding. Rank 0
// has padding only if it has all elements.
void DeepSpeedShards::check_part(int rank, std::size_t group, std::int64_t elems) const {
  const std::int64_t world = files_.world();
  const Flat& own = part(rank, group);
  const std::int64_t size = part(0, group).elems;
  const auto is_padded = [&](std::int64_t each) {  // DeepSpeed pads to a multiple of 2 * world
    return each * world >= elems && each * world - elems < 2 * world;
  };
  const std::int64_t without_padding = std::clamp<std::int64_t>(elems - rank * size, 0, size);
  const bool fits = own.elems == size || own.elems == without_padding;
  if (!fits || !is_padded(size)) {
    throw error(rank,
                format_text("holds {} elements, which are no part {} of {} of the {} that "
                            "param_shapes gives group {}: a file of another save, or states that "
                            "were on NVMe",
                            own.elems, rank, world, elems, group),
                "fp32", *own.value);
  }
  for (std::size_t kind = 1; moments_ && kind < kStates.size(); ++kind) {
    const Flat& moment = part(rank, group, kind);
    const std::int64_t first = part(0, group, 1).elems;
    const bool padded = size == elems && first > size && is_padded(first);
    if (moment.elems == first && (first == size || padded)) continue;
    throw error(rank,
                format_text("holds {} elements, and the weights' part of group {} is of {}{}",
                            moment.elems, group, size, kWeightsAlone),
                kStates[kind], *moment.value);
  }
}

// Compares the places with those that the rank's file states. With round_robin_gradients DeepSpeed
// orders the tensors by param_shapes, and these places by the module.
void DeepSpeedShards::check_mapping(int rank, std::size_t group) const {
  const TorchFile& file = *nth(files_.optimizers, rank);
  const PickleValue* const all = find(rank, files_.states(rank), "param_slice_mappings");
  if (all == nullptr || !is_sequence(*all) || group >= all->items.size()) return;
  const PickleValue* const config = find(rank, file.root(), "ds_config");
  const PickleValue* const zero = config ? find(rank, *config, "zero_optimization") : nullptr;
  const PickleValue* const robin = zero ? find(rank, *zero, "round_robin_gradients") : nullptr;
  if (robin != nullptr && robin->number != 0) return;
  const auto stated = file.tree().entries(file.tree().at(all->items[group]));
  const std::int64_t size = part(0, group).elems;
  for (const std::string& name : listed_[group]) {
    const Param& param = params_.at(name);
    const std::int64_t first = std::max(param.at, rank * size);
    const std::int64_t last = std::min(param.at + param.elems, (rank + 1) * size);
    const auto found = stated.find(name);
    const bool expected = first < last;
    if (found == stated.end() && !expected) continue;
    const PickleValue& at = found == stated.end() ? *all : *found->second;
    if (found != stated.end() && expected &&
        whole_number(file.tree(), at, "start") == first - rank * size &&
        whole_number(file.tree(), at, "numel") == last - first) {
      continue;
    }
    throw error(rank,
                format_text("is not where param_slice_mappings puts it in the part of rank {}: the "
                            "file of another rank or save",
                            rank),
                name, at);
  }
}

// A parameter never crosses from one group of the optimizer to the next.
void DeepSpeedShards::place_stage3() {
  std::size_t group = 0;
  std::int64_t at = 0;
  const std::vector<Group>& first = ranks_[0];
  const auto full = [&] { return group < first.size() && at == first[group][0].elems; };
  for (const std::string& name : names_) {
    Param& param = params_.at(name);
    const std::int64_t elems = stage3_part(param.elems, files_.world());
    for (; full(); at = 0) ++group;
    if (group == first.size() || elems > first[group][0].elems - at) {
      throw error(0,
                  "is not in the flat groups, which end before it: a file of another save, or "
                  "states that were on NVMe",
                  name, files_.states(0));
    }
    param.group = group;
    param.at = at;
    at += elems;
  }
  for (; full(); at = 0) ++group;
  if (group < first.size()) {
    throw error(0, "holds more elements than param_shapes names: a file of another save",
                "fp32_flat_groups", *first[group][0].value);
  }
  for (int rank = 0; rank < files_.world(); ++rank) {
    for (std::size_t g = 0; g < first.size(); ++g) {
      for (std::size_t kind = 0; kind < (moments_ ? kStates.size() : 1); ++kind) {
        const Flat& own = part(rank, g, kind);
        if (own.elems == first[g][0].elems) continue;
        throw error(rank,
                    format_text("holds {} elements in group {}, and rank 0's weights {}", own.elems,
                                g, first[g][0].elems),
                    kStates[kind], *own.value);
      }
    }
  }
}

OpenTensor DeepSpeedShards::open(const std::string& name, StateKind kind) const {
  const Param& param = params_.at(name);
  const std::size_t state = kind == StateKind::kMaster ? 0 : kind == StateKind::kMoment1 ? 1 : 2;
  std::vector<TensorRun> runs;
  const auto add = [&](std::int64_t rank, std::int64_t from, std::int64_t elems) {
    const Flat& own = part(static_cast<int>(rank), param.group, state);
    runs.push_back({nth(files_.optimizers, rank), own.value, from, elems});
  };
  if (files_.stage3) {
    const std::int64_t each = stage3_part(param.elems, files_.world());
    for (std::int64_t rank = 0; rank * each < param.elems; ++rank) {
      add(rank, param.at, std::min(each, param.elems - rank * each));
    }
    return {name, param.shape, runs};
  }
  const std::int64_t size = part(0, param.group).elems;
  for (std::int64_t at = param.at, end = at + param.elems; at < end;) {
    const std::int64_t elems = std::min(end - at, size - at % size);
    add(at / size, at % size, elems);
    at += elems;
  }
  return {name, param.shape, runs};
}

}  // namespace sluice
