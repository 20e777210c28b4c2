#include "runtime/engine/group_store.hpp"

#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "base/index.hpp"
#include "kernels/cpu/cast.hpp"
#include "kernels/cpu/philox.hpp"
#include "kernels/cpu/update/remainder.hpp"
#include "runtime/engine/param_parts.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

c10::ScalarType type_of(const StateBlock& block) {
  if (block.array == StateArray::kRemainder) return c10::ScalarType::Short;
  return block.element_bytes == 1 ? c10::ScalarType::Byte : scalar_type(block.dtype);
}

// A tensor whose storage has no memory yet.
at::Tensor empty_window(std::int64_t elems, c10::ScalarType type, at::Device device) {
  static char nowhere;
  const auto options = at::TensorOptions().dtype(type).device(device);
  at::Tensor window =
      at::for_blob(&nowhere, {elems}).options(options).target_device(device).make_tensor();
  window.storage().set_data_ptr_noswap(c10::DataPtr(nullptr, device));
  return window;
}

void point_storage(const at::Tensor& window, void* memory) {
  window.storage().set_data_ptr_noswap(c10::DataPtr(memory, window.device()));
}

std::vector<at::Tensor> views_of(const at::Tensor& window, const GroupPlan& plan) {
  std::vector<at::Tensor> views;
  views.reserve(plan.tensors.size());
  for (const TensorPlacement& tensor : plan.tensors) {
    views.push_back(window.narrow(0, tensor.offset_elems, tensor.elems).view(tensor.spec.shape));
  }
  return views;
}

}  // namespace

GroupStore::GroupStore(const ModelSpec& spec, const StepPlan& plan, const StateTable& table,
                       int dp_rank, const DeviceMemory& memory)
    : memory_(memory), dtype_(plan.shape.dtype), groups_(plan.groups.size()) {
  for (const StateBlock& block : table.blocks) {
    const bool holds = block.tier == Tier::kDevice && !block.reserved;
    blocks_.push_back(holds
                          ? memory.block(block.bytes / block.element_bytes, type_of(block),
                                         block.collective ? BlockUse::kCollective : BlockUse::kOwn)
                          : at::Tensor());
  }
  for (const StateRow& row : table.rows) {
    if (row.group >= 0 && row.tier == Tier::kDevice) take(row);
  }
  number_elements(plan, dp_rank);
  for (int g = 0; g < size(); ++g) make_views(plan, g, dp_rank);
  for (const UnitSpec& unit : spec.units) {
    std::vector<at::Tensor> params;
    params.reserve(unit.params.size());
    for (const ParamRef& ref : unit.params) {
      params.push_back(nth(group(ref.group).params, ref.index));
    }
    unit_params_.push_back(std::move(params));
  }
}

// Sets the tensor of the group's state to the row's elements in its block.
void GroupStore::take(const StateRow& row) {
  const at::Tensor array =
      nth(blocks_, row.block).narrow(0, row.offset_bytes / row.element_bytes, row.elems);
  GroupState& state = group(row.group);
  switch (row.array) {
    case StateArray::kFullParameters:
      state.window = array;
      break;
    case StateArray::kParameterShard:
      state.shard = array;
      break;
    case StateArray::kFullGradients:
      state.grad_full = array;
      break;
    case StateArray::kGradientShard:
      if (row.stream == 0) {
        state.grad_shard = array;
      } else {
        state.grad_streams.push_back(array);
      }
      break;
    case StateArray::kRemainder:
      state.remainders = array;
      break;
    default:
      (row.state == StateKind::kMaster ? state.master : state.moments[moment_index(row.state)]) =
          array;
  }
}

// Replicas of a group get equal numbers, whatever other groups their ranks hold.
void GroupStore::number_elements(const StepPlan& plan, int dp_rank) {
  const StepShape& shape = plan.shape;
  const bool is_part = shape.tensor > 1 || shape.pipeline.stages > 1;
  constexpr int kSpareBits = 8;  // so that elements of a group can be added
  std::int64_t elements = 0;     // of the groups before
  for (int g = 0; g < size(); ++g) {
    const std::int64_t first =
        is_part ? static_cast<std::int64_t>(hash_name(nth(plan.groups, g).name) >> kSpareBits)
                : elements;
    group(g).first_element = first + owned_begin(shape, g, dp_rank);
    elements += nth(shape.groups, g).elems;
  }
}

// Makes windows without memory for gathered arrays, and views of a group's other arrays.
void GroupStore::make_views(const StepPlan& plan, int g, int dp_rank) {
  const StepShape& shape = plan.shape;
  GroupState& state = group(g);
  const GroupPlan& group_plan = nth(plan.groups, g);
  const bool whole = owns_whole_groups(shape);
  const std::int64_t begin = owned_begin(shape, g, dp_rank);
  if (state.window.defined()) {
    state.shard = state.window.narrow(0, begin, owned_elems(shape, g));
  } else {
    state.window = empty_window(group_plan.elems, scalar_type(dtype_), memory_.device());
  }
  if (!state.grad_full.defined()) {
    state.grad_full = empty_window(group_plan.elems, c10::ScalarType::Float, memory_.device());
  }
  const std::int64_t updated = device_elems(shape, g);
  if (updated > 0 && !state.master.defined() && !state.remainders.defined()) {  // fp32
    state.master_is_shard = true;
    state.master = state.shard.narrow(0, 0, updated);
  }
  if (!is_frozen(shape, g) && shape.placement.gradients == Tier::kDevice) {
    const std::int64_t shard_elems = group_plan.shard_elems;
    const bool rounds = nth(shape.groups, g).rounds_gradients;
    state.rounds_gradients = rounds;
    if (!state.grad_shard.defined()) {
      // A shard without a row passes.
      state.grad_shard =
          has_gradient_shard(shape) || rounds
              ? empty_window(shard_elems, scalar_type(gradient_dtype(shape, g)), memory_.device())
              : state.grad_full.narrow(0, dp_rank * shard_elems, shard_elems);
    }
    state.grad_owned = whole && !rounds ? state.grad_full : state.grad_shard;
  }
  state.params = views_of(state.window, group_plan);
  state.grads = is_frozen(shape, g) ? std::vector<at::Tensor>(group_plan.tensors.size())
                                    : views_of(state.grad_full, group_plan);
  state.grad_written.assign(group_plan.tensors.size(), false);
  state.segments = shard_segments(group_plan, whole ? -1 : dp_rank);
  padding_.push_back(group_plan.padding);
}

at::Tensor GroupStore::block(const StateTable& table, StateArray array) const {
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    if (table.blocks[b].array == array) return blocks_[b];
  }
  return empty_tensor({0}, c10::ScalarType::Byte, memory_.device());
}

void GroupStore::write_master(int g, std::int64_t begin, const at::Tensor& values) {
  GroupState& state = group(g);
  if (state.shard.defined()) round_to(state.shard.narrow(0, begin, values.numel()), values);
  const bool splits = state.remainders.defined();
  const at::Tensor& to = splits ? state.remainders : state.master;
  if (!to.defined() || state.master_is_shard) return;
  const std::int64_t here = std::min(values.numel(), to.numel() - begin);
  if (here <= 0) return;
  at::Tensor from = values.narrow(0, 0, here);
  if (splits) {
    const at::Tensor low = empty_tensor({here}, c10::ScalarType::Short);
    take_remainders(static_cast<std::uint16_t*>(host_bytes(low)), host_data<float>(from), here);
    from = low;
  }
  to.narrow(0, begin, here).copy_(from);
}

void GroupStore::bind_params(int g, void* slot) { point_storage(group(g).window, slot); }

void GroupStore::unbind_params(int g) { point_storage(group(g).window, nullptr); }

void GroupStore::bind_grads(int g, void* slot) {
  point_storage(group(g).grad_full, slot);
  // A slot that is rounded dies within a graph, and this would run behind that graph.
  if (!group(g).rounds_gradients) zero_padding(g, group(g).grad_full);
}

void GroupStore::round_grads(int g) {
  round_to(group(g).grad_shard, group(g).grad_full);
  zero_padding(g, group(g).grad_shard);
}

void GroupStore::zero_padding(int g, const at::Tensor& whole) {
  for (const ElemRange& gap : nth(padding_, g)) {
    whole.narrow(0, gap.begin, gap.end - gap.begin).zero_();
  }
}

void GroupStore::unbind_grads(int g, const void* slot) {
  if (group(g).grad_full.data_ptr() == slot) point_storage(group(g).grad_full, nullptr);
}

void GroupStore::pass_grads(int g, void* memory) {
  const GroupState& state = group(g);
  const bool full = state.grad_owned.is_alias_of(state.grad_full);
  if (full && memory != nullptr) return bind_grads(g, memory);
  point_storage(state.grad_owned, memory);
}

void round_to(const at::Tensor& to, const at::Tensor& values) {
  if (!to.is_cpu()) {
    to.copy_(values);
    return;
  }
  convert(host_bytes(to), dtype_of(to), host_data<float>(values), DType::kFloat32, values.numel());
}

namespace {

// Elements of the whole parameter from `element` on.
void draw_run(const ParamSpec& param, std::int64_t element, std::uint64_t seed,
              const InitialWeights& initial, std::span<float> out) {
  if (initial) {
    const std::int64_t had = initial(param.tensor.name, element, out);
    out = out.subspan(static_cast<std::size_t>(had));
    element += had;
  }
  if (param.init == Init::kNormal) {
    fill_normal(out, seed, hash_name(param.tensor.name), element, 0.0F,
                static_cast<float>(param.init_std));
  } else {
    std::fill(out.begin(), out.end(), param.init == Init::kOnes ? 1.0F : 0.0F);
  }
}

}  // namespace

at::Tensor draw_owned(const ModelSpec& spec, const StepPlan& plan, int g, int dp_rank,
                      std::int64_t first, std::int64_t elems, std::uint64_t seed,
                      const InitialWeights& initial) {
  const GroupPlan& group = nth(plan.groups, g);
  const std::int64_t begin = first + owned_begin(plan.shape, g, dp_rank);
  const std::int64_t end = begin + elems;
  const at::Tensor drawn = empty_tensor({end - begin}, c10::ScalarType::Float).zero_();
  for (std::size_t i = 0; i < group.tensors.size(); ++i) {
    const TensorPlacement& tensor = group.tensors[i];
    const ParamSpec& param = nth(spec.groups, g).params[i];
    const std::int64_t from = std::max(begin, tensor.offset_elems);
    const std::int64_t to = std::min(end, tensor.offset_elems + tensor.elems);
    if (from >= to) continue;
    const std::span<float> out(host_data<float>(drawn) + (from - begin),
                               static_cast<std::size_t>(to - from));
    const std::int64_t first_local = from - tensor.offset_elems;
    for (const ParamRun& run : runs_of(param, first_local, first_local + (to - from))) {
      draw_run(param, run.whole, seed, initial,
               out.subspan(static_cast<std::size_t>(run.local - first_local),
                           static_cast<std::size_t>(run.elems)));
    }
  }
  return drawn;
}

}  // namespace sluice
