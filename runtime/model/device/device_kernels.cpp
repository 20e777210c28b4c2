#include "runtime/model/device/device_kernels.hpp"

#include <vector>

#include "base/error.hpp"
#include "kernels/cpu/dropout_threshold.hpp"
#include "parallel/comm/cuda_module.hpp"
#include "runtime/model/device/kernel_calls.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice::device {
namespace {

using at::Tensor;

// Null for an undefined tensor.
void* data(const Tensor& x) {
  if (!x.defined()) return nullptr;
  check(x.is_cuda() && x.is_contiguous(), "a kernel takes contiguous tensors of its GPU");
  return x.data_ptr();
}
float* numbers(const Tensor& x) { return static_cast<float*>(data(x)); }

std::uint32_t* maxima_of(const Measured& y) {
  return static_cast<std::uint32_t*>(data(y.row_maxima));
}

// `y`: the norm's result, where a kernel writes it.
cuda::NormRows rows_of(const Norm& norm, const Measured& y = {}) {
  float* const statistics = numbers(norm.statistics);
  const std::int64_t rows = norm.x.size(0);
  float* const rstd =
      statistics == nullptr ? nullptr : statistics + (norm.centered ? rows : std::int64_t{0});
  return {.at = {.x = data(norm.x),
                 .weight = data(norm.weight),
                 .bias = data(norm.bias),
                 .mean = norm.centered ? statistics : nullptr,
                 .rstd = rstd,
                 .dtype = dtype_of(norm.x),
                 .rows = rows,
                 .hidden = norm.x.size(1),
                 .eps = norm.eps},
          .centered = norm.centered,
          .row_maxima = maxima_of(y)};
}

cuda::BranchArgs args_of(const Branch& branch) {
  cuda::BranchArgs args{.out = data(branch.out),
                        .x = data(branch.x),
                        .bias = data(branch.bias),
                        .residual = data(branch.residual),
                        .dtype = dtype_of(branch.x),
                        .rows = branch.x.numel() / branch.x.size(-1),
                        .columns = branch.x.size(-1),
                        .mask = {}};
  if (branch.dropout.active()) args.mask = mask_of(branch.dropout);
  return args;
}

// Parts of both sums of a norm over the rows of x, or of the weight's alone: [count, blocks,
// columns].
Tensor norm_sum_parts(const Tensor& x, std::int64_t count) {
  return empty_tensor({count, cuda::sum_blocks(x.size(0)), x.size(1)}, c10::ScalarType::Float,
                      x.device());
}

// Floats of a row's part in memory.
constexpr std::int64_t kPartFloats = sizeof(cuda::EntropyPart) / sizeof(float);

cuda::EntropyArgs args_of(const Entropy& entropy) {
  const Tensor& logits = entropy.logits;
  const Tensor& gradient = entropy.gradient;
  const EntropySlice& slice = entropy.slice;
  check(logits.is_cuda() && logits.stride(1) == 1 &&
            (!gradient.defined() || gradient.data_ptr() == logits.data_ptr()),
        "on a GPU the gradient of cross entropy replaces the logits");
  cuda::EntropyArgs args{.logits = static_cast<float*>(logits.data_ptr()),
                         .gradient = gradient.defined(),
                         .losses = numbers(entropy.losses),
                         .targets = static_cast<const std::int64_t*>(data(entropy.targets)),
                         .dtype = gradient.defined() ? dtype_of(gradient) : DType::kFloat32,
                         .rows = logits.size(0),
                         .vocab = logits.size(1),
                         .row_stride = logits.stride(0),
                         .scale = static_cast<float>(entropy.scale)};
  args.slices = {.parts = static_cast<const cuda::EntropyPart*>(data(slice.parts)),
                 .ranks = slice.parts.defined() ? static_cast<int>(slice.parts.size(0)) : 0,
                 .first = slice.own.first,
                 .words = slice.words};
  args.scalars = entropy.scalars;
  return args;
}

}  // namespace

const CudaBlockKernels& block_kernels() {
  static const CudaBlockKernels& table =
      reinterpret_cast<GetCudaBlockKernels*>(cuda_module_symbol(kGetCudaBlockKernels))();
  return table;
}

cuda::StreamRef stream_of(const Tensor& x) { return block_kernels().stream(x.device().index()); }

cuda::MaskPlace mask_of(const DropoutPlace& place) {
  return {.threshold = dropout_threshold(place.p),
          .keep = static_cast<float>(1.0 / (1.0 - place.p)),
          .seed = place.call.seed,
          .step = static_cast<std::uint64_t>(place.call.step),
          .first_sample = static_cast<std::uint64_t>(place.call.first_sample),
          .site = place.site,
          .per_sample = place.per_sample,
          .first = place.first,
          .offset = place.offset,
          .scalars = place.call.scalars};
}

void norm_forward(const Measured& y, const Norm& norm) {
  if (norm.x.is_meta()) return;
  block_kernels().norm_forward(rows_of(norm, y), data(y.tensor), stream_of(norm.x));
}

void norm_input_gradient(const Tensor& dx, const Tensor& dy, const Tensor& residual,
                         const Norm& norm) {
  if (dx.is_meta()) return;
  block_kernels().norm_input_gradient(
      rows_of(norm), {.dx = data(dx), .dy = data(dy), .residual = data(residual)}, stream_of(dx));
}

void norm_weight_gradient(const GradTarget& weight, const GradTarget& bias, const Tensor& dy,
                          const Norm& norm, RowSums* sums) {
  if (!weight.wanted() && !bias.wanted()) return;
  const Tensor parts = norm_sum_parts(dy, norm.centered ? 2 : 1);
  if (!dy.is_meta()) {
    block_kernels().norm_parts(rows_of(norm), {.dy = data(dy), .parts = numbers(parts)},
                               stream_of(dy));
  }
  RowSums own;
  RowSums& all = sums == nullptr ? own : *sums;
  if (weight.wanted()) all.add(weight, parts.select(0, 0));
  if (bias.wanted()) all.add(bias, parts.select(0, 1));
  own.finish();
}

Tensor sum_parts(const Tensor& x) {
  return empty_tensor({cuda::sum_blocks(x.size(0)), x.size(1)}, c10::ScalarType::Float, x.device());
}

void bias_gradient(const GradTarget& target, const Tensor& dy, RowSums* sums) {
  RowSums own;
  const Tensor parts = (sums == nullptr ? own : *sums).start(target, dy);
  if (!parts.defined()) return;
  if (!dy.is_meta()) {
    block_kernels().column_parts({.x = data(dy),
                                  .dtype = dtype_of(dy),
                                  .rows = dy.size(0),
                                  .columns = dy.size(1),
                                  .parts = numbers(parts)},
                                 stream_of(dy));
  }
  own.finish();
}

void finish_sums(std::span<const RowSums::Sum> sums) {
  if (sums.empty() || sums[0].parts.is_meta()) return;
  std::vector<cuda::ColumnTotal> totals;
  for (const RowSums::Sum& sum : sums) {
    totals.push_back({.total = numbers(sum.target.grad),
                      .parts = numbers(sum.parts),
                      .blocks = sum.parts.size(0),
                      .columns = sum.parts.size(1),
                      .accumulate = sum.target.accumulate});
  }
  block_kernels().column_totals(totals.data(), static_cast<int>(totals.size()),
                                stream_of(sums[0].parts));
}

void gelu(const Measured& y, const Tensor& x) {
  if (x.is_meta()) return;
  block_kernels().gelu({.y = data(y.tensor),
                        .x = data(x),
                        .dtype = dtype_of(x),
                        .width = x.size(-1),
                        .rows = x.numel() / x.size(-1),
                        .row_maxima = maxima_of(y)},
                       stream_of(x));
}

void gelu_gradient(const ActivationGradient& to) {
  const Tensor& x = to.up;
  if (x.is_meta()) return;
  void* const dy = data(to.dy.tensor);
  block_kernels().gelu_gradient({.dx = data(to.dup.tensor),
                                 .y = to.again ? dy : nullptr,
                                 .x = data(x),
                                 .dy = dy,
                                 .dtype = dtype_of(x),
                                 .width = x.size(-1),
                                 .rows = x.numel() / x.size(-1),
                                 .row_maxima = maxima_of(to.dup),
                                 .parts = numbers(to.parts)},
                                stream_of(x));
}

void swiglu(const Measured& y, const Tensor& gate_up) {
  if (gate_up.is_meta()) return;
  block_kernels().swiglu({.y = data(y.tensor),
                          .gate_up = data(gate_up),
                          .dtype = dtype_of(gate_up),
                          .rows = gate_up.size(0),
                          .width = gate_up.size(1) / 2,
                          .row_maxima = maxima_of(y)},
                         stream_of(gate_up));
}

void swiglu_gradient(const ActivationGradient& to) {
  if (to.up.is_meta()) return;
  void* const dy = data(to.dy.tensor);
  block_kernels().swiglu_gradient({.d_gate_up = data(to.dup.tensor),
                                   .y = to.again ? dy : nullptr,
                                   .gate_up = data(to.up),
                                   .dy = dy,
                                   .dtype = dtype_of(to.up),
                                   .rows = to.up.size(0),
                                   .width = to.up.size(1) / 2,
                                   .row_maxima = maxima_of(to.dup)},
                                  stream_of(to.up));
}

void rope(const RopeRows& rows) {
  if (rows.x.is_meta()) return;
  const Tensor& positions = rows.positions;
  block_kernels().rope({.at = {.x = data(rows.x),
                               .cos = numbers(rows.cos),
                               .sin = numbers(rows.sin),
                               .dtype = dtype_of(rows.x),
                               .rows = rows.x.size(0),
                               .seq = rows.seq,
                               .heads = rows.heads,
                               .head_dim = 2 * rows.cos.size(1),
                               .stride = rows.x.size(1),
                               .back = rows.back},
                        .positions = static_cast<const std::int64_t*>(data(positions))},
                       stream_of(rows.x));
}

void end_branch(const Branch& branch) {
  if (branch.out.is_meta()) return;
  block_kernels().branch(args_of(branch), stream_of(branch.out));
}

void end_branch(const Branch& branch, const Measured& y, const Norm& norm) {
  if (branch.out.is_meta()) return;
  block_kernels().branch_norm(args_of(branch), rows_of(norm, y), data(y.tensor),
                              stream_of(branch.out));
}

Tensor keep_mask(const Tensor& x, const DropoutPlace& place) {
  const Tensor mask = empty_tensor(x.sizes(), x.scalar_type(), x.device()).fill_(1);
  if (mask.is_meta()) return mask;
  cuda::BranchArgs args{.out = data(mask),
                        .x = data(mask),
                        .dtype = dtype_of(mask),
                        .rows = mask.numel() / mask.size(-1),
                        .columns = mask.size(-1),
                        .mask = mask_of(place)};
  args.mask.keep = 1;
  block_kernels().branch(args, stream_of(mask));
  return mask;
}

void embedding_gradient(const EmbeddingRows& rows) {
  const std::int64_t tokens = rows.dy.size(0);
  const Tensor order = empty_tensor({tokens}, c10::ScalarType::Int, rows.dy.device());
  if (rows.dy.is_meta()) return;
  block_kernels().embedding_gradient(
      {.grad = numbers(rows.grad),
       .dy = data(rows.dy),
       .order = static_cast<std::int32_t*>(data(order)),
       .dtype = dtype_of(rows.dy),
       .at = {.rows = static_cast<const std::int64_t*>(data(rows.rows)),
              .tokens = tokens,
              .period = rows.period},
       .first = rows.first,
       .rows = rows.grad.size(0),
       .hidden = rows.grad.size(1)},
      stream_of(rows.dy));
}

void cross_entropy(const Entropy& entropy) {
  if (entropy.logits.is_meta()) return;
  block_kernels().entropy(args_of(entropy), stream_of(entropy.logits));
}

Tensor entropy_parts(const Entropy& entropy) {
  const Tensor& logits = entropy.logits;
  const Tensor parts =
      empty_tensor({logits.size(0), kPartFloats}, c10::ScalarType::Float, logits.device());
  if (logits.is_meta()) return parts;
  block_kernels().entropy_parts(args_of(entropy), static_cast<cuda::EntropyPart*>(data(parts)),
                                stream_of(logits));
  return parts;
}

void look_up_tokens(const Tensor& out, const Tensor& rows, const Tensor& tokens,
                    const TokenTable& table) {
  if (out.is_meta()) return;
  block_kernels().token_lookup({.out = data(out),
                                .table = data(rows),
                                .tokens = static_cast<const std::int64_t*>(data(tokens)),
                                .dtype = dtype_of(out),
                                .count = tokens.numel(),
                                .first = table.own.first,
                                .rows = table.own.count,
                                .words = table.words,
                                .hidden = out.size(1)},
                               stream_of(out));
}

}  // namespace sluice::device
