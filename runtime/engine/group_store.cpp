#include "runtime/engine/group_store.hpp"

#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "kernels/cpu/cast.hpp"
#include "kernels/cpu/philox.hpp"
#include "runtime/engine/param_parts.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

// Hands out consecutive pieces of one allocation.
class Block {
 public:
  Block(const DeviceMemory& memory, std::int64_t elems, c10::ScalarType type, BlockUse use)
      : memory_(memory.block(elems, type, use)) {}
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

GroupStore::GroupStore(const ModelSpec& spec, const StepPlan& plan, int dp_rank,
                       const DeviceMemory& memory)
    : memory_(memory), dtype_(plan.shape.dtype), groups_(plan.groups.size()) {
  make_windows(plan);
  make_states(plan, dp_rank);
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
  Block params(memory_, resident, type, BlockUse::kCollective);
  const bool grads_stay = plan.shape.stage <= 1 && !plan.shape.frozen;
  Block grads(memory_, grads_stay ? full : 0, c10::ScalarType::Float, BlockUse::kCollective);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    GroupState& state = groups_[g];
    const GroupPlan& group = plan.groups[g];
    state.window = plan.shape.groups[g].resident
                       ? params.take(group.elems)
                       : empty_window(group.elems, type, memory_.device());
    state.params = views_of(state.window, group);
    state.grad_full = grads_stay
                          ? grads.take(group.elems)
                          : empty_window(group.elems, c10::ScalarType::Float, memory_.device());
    state.grads = views_of(state.grad_full, group);
    state.grad_written.assign(group.tensors.size(), false);
    padding_.push_back(group.padding);
  }
}

void GroupStore::make_states(const StepPlan& plan, int dp_rank) {
  const StepShape& shape = plan.shape;
  const bool whole = shape.stage == 0;
  const bool narrow = dtype_ != DType::kFloat32;
  const bool grads_here = !shape.frozen && shape.placement.gradients == Tier::kDevice;
  const bool shards_here = has_gradient_shard(shape) && grads_here;
  std::int64_t updated = 0;  // on the device
  std::int64_t apart = 0;    // shards that are no slice of a resident window
  std::int64_t sums = 0;
  for (int g = 0; g < size(); ++g) {
    const std::int64_t shard_elems = plan.groups[static_cast<std::size_t>(g)].shard_elems;
    const bool resident = shape.groups[static_cast<std::size_t>(g)].resident;
    updated += device_elems(shape, g);
    apart += resident || parameter_tier(shape, g) != Tier::kDevice ? 0 : shard_elems;
    sums += shard_elems * gradient_streams(shape, g);
  }
  const auto fp32 = c10::ScalarType::Float;
  Block sharded(memory_, apart, scalar_type(dtype_), BlockUse::kCollective);
  Block master(memory_, narrow ? updated : 0, fp32, BlockUse::kOwn);
  Block moments(memory_, 2 * updated, fp32, BlockUse::kOwn);
  // Stage 0 gathers them: the other stages only read them here.
  Block grad_shards(memory_, shards_here ? sums : 0, fp32,
                    whole ? BlockUse::kCollective : BlockUse::kOwn);
  for (int g = 0; g < size(); ++g) {
    GroupState& state = group(g);
    const GroupPlan& group_plan = plan.groups[static_cast<std::size_t>(g)];
    const std::int64_t shard_elems = group_plan.shard_elems;
    const std::int64_t begin = dp_rank * shard_elems;
    if (whole) {
      state.shard = state.window;
    } else if (shape.groups[static_cast<std::size_t>(g)].resident) {
      state.shard = state.window.narrow(0, begin, shard_elems);
    } else if (parameter_tier(shape, g) == Tier::kDevice) {
      state.shard = sharded.take(shard_elems);
    }
    const std::int64_t here = device_elems(shape, g);
    if (here > 0) {
      state.master_is_shard = !narrow;
      state.master = narrow ? master.take(here) : state.shard.narrow(0, 0, here);
      state.moment1 = moments.take(here);
      state.moment2 = moments.take(here);
    }
    if (grads_here) {
      state.grad_shard = shards_here ? grad_shards.take(shard_elems)
                                     : state.grad_full.narrow(0, begin, shard_elems);
      for (int s = 1; s < gradient_streams(shape, g); ++s) {
        state.grad_streams.push_back(grad_shards.take(shard_elems));
      }
      state.grad_owned = whole ? state.grad_full : state.grad_shard;
    }
    state.segments = shard_segments(group_plan, whole ? -1 : dp_rank);
  }
}

void GroupStore::write_master(int g, std::int64_t begin, const at::Tensor& values) {
  GroupState& state = group(g);
  if (state.shard.defined()) {
    const at::Tensor to = state.shard.narrow(0, begin, values.numel());
    if (to.is_cpu()) {  // as an update would round
      convert(host_bytes(to), dtype_, host_data<float>(values), DType::kFloat32, values.numel());
    } else {
      to.copy_(values);
    }
  }
  if (!state.master.defined() || state.master_is_shard) return;
  const std::int64_t here = std::min(values.numel(), state.master.numel() - begin);
  if (here > 0) state.master.narrow(0, begin, here).copy_(values.narrow(0, 0, here));
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

void GroupStore::unbind_grads(int g, const void* slot) {
  if (group(g).grad_full.data_ptr() == slot) point_storage(group(g).grad_full, nullptr);
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
  const GroupPlan& group = plan.groups[static_cast<std::size_t>(g)];
  const std::int64_t begin = first + (plan.shape.stage == 0 ? 0 : dp_rank * group.shard_elems);
  const std::int64_t end = begin + elems;
  const at::Tensor drawn = empty_tensor({end - begin}, c10::ScalarType::Float).zero_();
  for (std::size_t i = 0; i < group.tensors.size(); ++i) {
    const TensorPlacement& tensor = group.tensors[i];
    const ParamSpec& param = spec.groups[static_cast<std::size_t>(g)].params[i];
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
