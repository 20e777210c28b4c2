#include "runtime/model/blocks/block_parts.hpp"

#include "runtime/model/blocks/llama_params.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/math/explicit_linear.hpp"

namespace sluice {
namespace {

// The order of model_spec.cpp.
BlockParams gpt2_params() {
  BlockParams at;
  at.norm1 = {0, 1};
  at.qkv = {2, 3, 1};
  at.out = 4;
  at.out_bias = 5;
  at.norm2 = {6, 7};
  at.up = {8, 9, 1};
  at.down = 10;
  at.down_bias = 11;
  return at;
}

RmsInput rms_input(const BlockNorm& norm) {
  return {norm.x, norm.weight, norm.statistics, norm.eps};
}

NormInput layer_norm_input(const BlockNorm& norm) {
  return {norm.x, norm.weight, norm.bias, norm.statistics, norm.eps};
}

}  // namespace

BlockParams block_params(const ModelOptions& options) {
  if (options.type == ModelType::kGpt2) return gpt2_params();
  const LlamaBlockParams llama = llama_block_params(options);
  BlockParams at;
  at.norm1 = {llama.input_norm, -1};
  at.qkv = {llama.q, llama.q_bias, 3};
  at.out = llama.o;
  at.out_bias = llama.o_bias;
  at.norm2 = {llama.post_norm, -1};
  at.up = {llama.gate, -1, 2};
  at.down = llama.down;
  return at;
}

void BlockNorm::keep_statistics() {
  const std::int64_t rows = x.size(0);
  const auto sizes = bias.defined() ? std::vector<std::int64_t>{2, rows} : std::vector{rows};
  statistics = empty_tensor(sizes, c10::ScalarType::Float, x.device());
}

void BlockNorm::forward(const Measured& y) const {
  if (bias.defined()) {
    norm_forward(y, layer_norm_input(*this));
  } else {
    rms_forward(y, rms_input(*this));
  }
}

device::Norm BlockNorm::on_device() const {
  return {x, weight, bias, statistics, eps, bias.defined()};
}

void BlockNorm::input_gradient(const at::Tensor& dx, const at::Tensor& dy,
                               const at::Tensor& residual) const {
  if (bias.defined()) {
    norm_input_gradient(dx, dy, residual, layer_norm_input(*this));
  } else {
    rms_input_gradient(dx, dy, residual, rms_input(*this));
  }
}

void BlockNorm::weight_gradient(WeightProducts& weights, const BlockParams::Norm& at,
                                const at::Tensor& dy) const {
  GradSink& sink = weights.sink();
  if (bias.defined()) {
    norm_weight_gradient(sink.target(at.weight), sink.target(at.bias), dy, layer_norm_input(*this),
                         &weights.sums());
  } else {
    rms_weight_gradient(sink.target(at.weight), dy, rms_input(*this), &weights.sums());
  }
}

void BlockActivation::forward(const Measured& y, const at::Tensor& up) const {
  if (gated_) {
    swiglu(y, up);
  } else {
    gelu(y, up);
  }
}

// One kernel makes the activation's output again and the gradient by its input. Where 8-bit
// products round dy, one call for both gradients rounds it once, so the output comes first.
void BlockActivation::backward(const ActivationGradient& to, const DownBackward& down) const {
  const Measured& act = to.dy;
  const bool wanted = down.target.wanted();
  const bool apart = wanted && act.row_maxima.defined();
  if (apart) {
    forward(act, to.up);
    linear_gradients(act.tensor, down.target, {down.dy, act, down.weight});
  } else {
    linear_input_gradient(act.tensor, down.dy, down.weight);
  }
  const bool again = wanted && !apart;
  gradient({to.dup, to.up, act, again, to.parts});
  if (again) linear_weight_gradient(down.target, down.dy, act);
}

void BlockActivation::gradient(const ActivationGradient& to) const {
  if (gated_) {
    swiglu_gradient(to);
  } else {
    gelu_gradient(to);
  }
}

}  // namespace sluice
