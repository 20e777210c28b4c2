// States of a small shard for add_updates(), made from a formula.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/cpu/update/remainder.hpp"
#include "runtime/engine/device_access.hpp"
#include "runtime/engine/update_step.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice::testing {

inline constexpr OptimizerOptions kUpdateOptions{.lr = 1e-2, .weight_decay = 0.1};
inline constexpr UpdateArgs kUpdateArgs{
    .step = 3, .lr = 3e-3, .grad_scale = 0.37, .rounding_seed = 77};

inline at::Tensor wave(std::int64_t n, double phase,
                       c10::ScalarType type = c10::ScalarType::Float) {
  at::Tensor x = empty_tensor({n}, c10::ScalarType::Float);
  for (std::int64_t i = 0; i < n; ++i) {
    host_data<float>(x)[i] = static_cast<float>(std::sin(phase + 0.7 * static_cast<double>(i)));
  }
  return x.to(type);
}

// A shard of 23 elements whose first 17 are updated here: 5 with decay, the others without.
inline GroupState update_state(DType weights, DType gradients) {
  GroupState state;
  state.shard = wave(23, 1, scalar_type(weights));
  state.master_is_shard = weights == DType::kFloat32;
  state.master = state.master_is_shard ? state.shard.narrow(0, 0, 17) : wave(17, 1);
  state.moments[0] = wave(17, 2);
  state.moments[1] = wave(17, 3).square();
  state.grad_owned = wave(23, 4, scalar_type(gradients));
  state.window = state.shard;
  state.segments = {{{0, 5}, true}, {{5, 23}, false}};
  return state;
}

inline at::Tensor remainders_of(const at::Tensor& master) {
  const at::Tensor low = empty_tensor({master.numel()}, c10::ScalarType::Short);
  take_remainders(static_cast<std::uint16_t*>(host_bytes(low)), host_data<float>(master),
                  low.numel());
  return low;
}

// update_state() of bf16 weights, with remainders in place of the master weights or with those.
inline GroupState bf16_state(DType gradients, bool splits) {
  GroupState state = update_state(DType::kBFloat16, gradients);
  leave_ties(host_data<float>(state.master), state.master.numel());
  state.shard.narrow(0, 0, 17).copy_(state.master);
  if (!splits) return state;
  state.remainders = remainders_of(state.master);
  state.master = at::Tensor();
  return state;
}

inline void update_on_its_device(GroupState& state, const OptimizerOptions& options,
                                 const UpdateArgs& args) {
  std::vector<UpdateSpan> updates;
  add_updates(state, options, args, updates);
  device_update(rule_of(options.type), state.shard.device())(updates, nullptr);
}

}  // namespace sluice::testing
