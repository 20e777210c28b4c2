// The kernel table of a back end S.
#pragma once

#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/isa/elementwise_impl.hpp"
#include "kernels/cpu/isa/math_impl.hpp"
#include "kernels/cpu/isa/norm_impl.hpp"
#include "kernels/cpu/isa/philox_impl.hpp"
#include "kernels/cpu/isa/rms_impl.hpp"
#include "kernels/cpu/update/adamw_impl.hpp"
#include "kernels/cpu/update/lion_impl.hpp"
#include "kernels/cpu/update/sgd_impl.hpp"

namespace sluice::isa {

template <class S>
constexpr KernelTable make_table(const char* name) {
  return KernelTable{
      .name = name,
      .convert = convert<S>,
      .add_to = add_to<S>,
      .ordered_sum = ordered_sum<S>,
      .scale = scale<S>,
      .add_rows = add_rows<S>,
      .adamw = update<S, AdamWLanes<S>>,
      .lion = update<S, LionLanes<S>>,
      .sgd = update<S, SgdLanes<S>>,
      .sum_squares_block = sum_squares_block<S>,
      .first_non_finite = first_non_finite<S>,
      .row_max = row_max<S>,
      .row_exp_sum = row_exp_sum<S>,
      .gelu_forward = gelu_forward<S>,
      .gelu_backward = gelu_backward<S>,
      .swiglu_forward = swiglu_forward<S>,
      .swiglu_backward = swiglu_backward<S>,
      .layer_norm_forward = layer_norm_forward<S>,
      .layer_norm_input_gradient = layer_norm_input_gradient<S>,
      .layer_norm_weight_gradient = layer_norm_weight_gradient<S>,
      .rms_norm_forward = rms_norm_forward<S>,
      .rms_norm_input_gradient = rms_norm_input_gradient<S>,
      .rms_norm_weight_gradient = rms_norm_weight_gradient<S>,
      .rope = rope<S>,
      .column_sum = column_sum<S>,
      .multiply_add = multiply_add<S>,
      .softmax_gradient_row = softmax_gradient_row<S>,
      .exp = exp_span<S>,
      .fill_normal = fill_normal<S>,
      .fill_mask_bytes = fill_mask_bytes<S>,
      .fill_mask_floats = fill_mask_floats<S>,
  };
}

}  // namespace sluice::isa
