#include "runtime/engine/group_store.hpp"

#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "kernels/cpu/philox.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

// Hands out consecutive pieces of one allocation.
class Block {
 public:
  Block(std::int64_t elems, c10::ScalarType type, at::Device device)
      : memory_(empty_tensor({elems}, type, device).zero_()) {}
  at::Tensor take(std::int64_t elems) {
    at::Tensor piece = memory_.narrow(0, used_, elems);
    used_ += elems;
    return piece;
  }

 private:
  at::Tensor memory_;
  std::int64_t used_ = 0;
};

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

GroupStore::GroupStore(const ModelSpec& spec, const StepPlan& plan, int dp_rank, at::Device device,
                       std::uint64_t seed)
    : device_(device), dtype_(plan.shape.dtype), groups_(plan.groups.size()) {
  make_windows(plan);
  make_states(plan, dp_rank);
  initialise(spec, plan, dp_rank, seed);
  for (const UnitSpec& unit : spec.units) {
    std::vector<at::Tensor> params;
    params.reserve(unit.params.size());
    for (const ParamRef& ref : unit.params) {
      params.push_back(group(ref.group).params[static_cast<std::size_t>(ref.index)]);
    }
    unit_params_.push_back(std::move(params));
  }
}

void GroupStore::make_windows(const StepPlan& plan) {
  const c10::ScalarType type = scalar_type(dtype_);
  std::int64_t resident = 0;
  std::int64_t full = 0;
  for (const GroupShape& shape : plan.shape.groups) {
    resident += shape.resident ? shape.elems : 0;
    full += shape.elems;
  }
  Block params(resident, type, device_);
  const bool grads_stay = plan.shape.stage <= 1;
  Block grads(grads_stay ? full : 0, c10::ScalarType::Float, device_);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    GroupState& state = groups_[g];
    const GroupPlan& group = plan.groups[g];
    state.window = plan.shape.groups[g].resident ? params.take(group.elems)
                                                 : empty_window(group.elems, type, device_);
    state.params = views_of(state.window, group);
    state.grad_full = grads_stay ? grads.take(group.elems)
                                 : empty_window(group.elems, c10::ScalarType::Float, device_);
    state.grads = views_of(state.grad_full, group);
    state.grad_written.assign(group.tensors.size(), false);
    padding_.push_back(group.padding);
  }
}

void GroupStore::make_states(const StepPlan& plan, int dp_rank) {
  const bool whole = plan.shape.stage == 0;
  const bool separate_master = dtype_ != DType::kFloat32;
  std::int64_t owned = 0;
  std::int64_t apart = 0;  // shards that are no slice of a resident window
  std::int64_t shards = 0;
  for (const GroupShape& shape : plan.shape.groups) {
    owned += whole ? shape.elems : shape.shard_elems;
    apart += shape.resident ? 0 : shape.shard_elems;
    shards += shape.shard_elems;
  }
  const auto fp32 = c10::ScalarType::Float;
  Block sharded(apart, scalar_type(dtype_), device_);
  Block master(separate_master ? owned : 0, fp32, device_);
  Block moments(2 * owned, fp32, device_);
  Block grad_shards(has_gradient_shard(plan.shape) ? shards : 0, fp32, device_);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    GroupState& state = groups_[g];
    const std::int64_t shard_elems = plan.groups[g].shard_elems;
    const std::int64_t begin = dp_rank * shard_elems;
    if (whole) {
      state.shard = state.window;
    } else if (plan.shape.groups[g].resident) {
      state.shard = state.window.narrow(0, begin, shard_elems);
    } else {
      state.shard = sharded.take(shard_elems);
    }
    state.master = separate_master ? master.take(state.shard.numel()) : state.shard;
    state.moment1 = moments.take(state.shard.numel());
    state.moment2 = moments.take(state.shard.numel());
    state.grad_shard = has_gradient_shard(plan.shape)
                           ? grad_shards.take(shard_elems)
                           : state.grad_full.narrow(0, begin, shard_elems);
    state.grad_owned = whole ? state.grad_full : state.grad_shard;
    state.segments = shard_segments(plan.groups[g], whole ? -1 : dp_rank);
    state.fresh = whole;
  }
}

// Each parameter's owned elements, drawn by (seed, name, element): no layout changes a weight.
void GroupStore::initialise(const ModelSpec& spec, const StepPlan& plan, int dp_rank,
                            std::uint64_t seed) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    GroupState& state = groups_[g];
    at::Tensor drawn = empty_tensor({state.shard.numel()}, c10::ScalarType::Float).zero_();
    const std::int64_t begin = plan.shape.stage == 0 ? 0 : dp_rank * plan.groups[g].shard_elems;
    const std::int64_t end = begin + state.shard.numel();
    for (std::size_t i = 0; i < plan.groups[g].tensors.size(); ++i) {
      const TensorPlacement& tensor = plan.groups[g].tensors[i];
      const ParamSpec& param = spec.groups[g].params[i];
      const std::int64_t from = std::max(begin, tensor.offset_elems);
      const std::int64_t to = std::min(end, tensor.offset_elems + tensor.elems);
      if (from >= to) continue;
      const std::span<float> out(host_data<float>(drawn) + (from - begin),
                                 static_cast<std::size_t>(to - from));
      if (param.init == Init::kNormal) {
        fill_normal(out, seed, hash_name(param.tensor.name), from - tensor.offset_elems, 0.0F,
                    static_cast<float>(param.init_std));
      } else {
        std::fill(out.begin(), out.end(), param.init == Init::kOnes ? 1.0F : 0.0F);
      }
    }
    state.master.copy_(drawn);
    if (!state.master.is_same(state.shard)) state.shard.copy_(drawn);
  }
}

void GroupStore::set_parameter(const StepPlan& plan, int g, int index, int dp_rank,
                               const at::Tensor& value) {
  GroupState& state = group(g);
  const GroupPlan& group_plan = plan.groups[static_cast<std::size_t>(g)];
  const TensorPlacement& tensor = group_plan.tensors[static_cast<std::size_t>(index)];
  check(value.numel() == tensor.elems, "a parameter is replaced by one of its size");
  const std::int64_t begin = plan.shape.stage == 0 ? 0 : dp_rank * group_plan.shard_elems;
  const std::int64_t from = std::max(begin, tensor.offset_elems);
  const std::int64_t to = std::min(begin + state.shard.numel(), tensor.offset_elems + tensor.elems);
  if (from < to) {
    const at::Tensor part = value.flatten().narrow(0, from - tensor.offset_elems, to - from);
    state.master.narrow(0, from - begin, to - from).copy_(part);
    if (!state.master.is_same(state.shard)) {
      state.shard.narrow(0, from - begin, to - from).copy_(part);
    }
  }
  state.fresh = plan.shape.stage == 0;
}

void GroupStore::bind_params(int g, void* slot) { point_storage(group(g).window, slot); }

void GroupStore::unbind_params(int g) { point_storage(group(g).window, nullptr); }

void GroupStore::bind_grads(int g, void* slot) {
  GroupState& state = group(g);
  point_storage(state.grad_full, slot);
  for (const ElemRange& gap : padding_[static_cast<std::size_t>(g)]) {
    state.grad_full.narrow(0, gap.begin, gap.end - gap.begin).zero_();
  }
}

void GroupStore::unbind_grads(int g) { point_storage(group(g).grad_full, nullptr); }

}  // namespace sluice
