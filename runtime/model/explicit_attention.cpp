#include "runtime/model/explicit_attention.hpp"

#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/causal_softmax.hpp"
#include "kernels/cpu/philox.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

using at::Tensor;

// Queries of a block: fewer make thin GEMMs, more compute scores above the diagonal in vain.
constexpr std::int64_t kBlock = 64;

// Heads at a time: bounds the scratch, and suffices to keep a batched GEMM's threads busy.
constexpr std::int64_t kHeads = 4;

Tensor like(const Tensor& q) {
  return at::empty({q.size(0), q.size(2), q.size(1), q.size(3)}, q.options()).transpose(1, 2);
}

// Some heads of one sample.
struct Part {
  std::int64_t b, head, heads;

  // [heads, S, D] of x.
  [[nodiscard]] Tensor of(const Tensor& x) const { return x.select(0, b).narrow(0, head, heads); }
  // In fp32: a view where it is fp32 already.
  [[nodiscard]] Tensor wide(const Tensor& x) const { return of(x).to(c10::ScalarType::Float); }
};

template <class Fn>
void for_parts(const Tensor& q, Fn f) {
  for (std::int64_t b = 0; b < q.size(0); ++b) {
    for (std::int64_t head = 0; head < q.size(1); head += kHeads) {
      f(Part{b, head, std::min(kHeads, q.size(1) - head)});
    }
  }
}

// fp32 [heads, S, D] for the largest part, where x is 16 bits; else undefined.
Tensor wide_scratch(const Tensor& x) {
  if (x.scalar_type() == c10::ScalarType::Float) return {};
  return at::empty({std::min(kHeads, x.size(1)), x.size(2), x.size(3)},
                   x.options().dtype(c10::ScalarType::Float));
}

// The queries [first, first + count) of a part, with scratch for their scores.
struct Block {
  const AttentionInput& in;
  Part part;
  std::int64_t first, count;

  [[nodiscard]] std::int64_t keys() const { return first + count; }
  [[nodiscard]] Tensor queries(const Tensor& x) const { return x.narrow(1, first, count); }
  [[nodiscard]] Tensor seen(const Tensor& x) const { return x.narrow(1, 0, keys()); }
  [[nodiscard]] Tensor scores(const Tensor& scratch) const {
    return scratch.narrow(0, 0, part.heads * count * keys()).view({part.heads, count, keys()});
  }
  [[nodiscard]] CausalBlock causal(const Tensor& weights) const {
    return {.scores = host_data<float>(weights),
            .heads = part.heads,
            .queries = count,
            .keys = keys(),
            .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(in.q.size(3))))};
  }
  // out may be weights.
  void drop(const Tensor& out, const Tensor& weights) const {
    if (out.is_meta()) return;
    const UnitCall& call = in.dropout.call;
    const std::array<std::uint64_t, 3> key{static_cast<std::uint64_t>(call.step),
                                           static_cast<std::uint64_t>(call.first_sample + part.b),
                                           in.dropout.site};
    drop_weights(causal(weights), host_data<float>(weights), host_data<float>(out),
                 {in.dropout.p, call.seed, hash_stream(key), part.head, in.q.size(2)});
  }
  // Softmax of the scores, before dropout.
  [[nodiscard]] Tensor weights(const Tensor& q, const Tensor& k, const Tensor& scratch) const {
    Tensor weights = scores(scratch);
    at::bmm_out(weights, queries(q), seen(k).transpose(1, 2));
    if (!weights.is_meta()) causal_softmax(causal(weights));
    return weights;
  }
};

Tensor scratch_for(const Tensor& q) {
  return at::empty({std::min(kHeads, q.size(1)) * std::min(kBlock, q.size(2)) * q.size(2)},
                   q.options().dtype(c10::ScalarType::Float));
}

struct PartTensors {
  Tensor q, k, v, grad;
  AttentionGradients d;  // fp32
};

// dk and dv of all keys that the block sees: replaced by the last block, which sees all, and added
// to by those before it.
void add_or_replace(Tensor sum, const Tensor& a, const Tensor& b, bool replace) {
  if (replace) {
    at::bmm_out(sum, a, b);
  } else {
    at::baddbmm_out(sum, sum, a, b);
  }
}

void block_backward(const Block& block, const PartTensors& s, const Tensor& weight_scratch,
                    const Tensor& grad_scratch) {
  const bool last = block.keys() == s.q.size(1);
  const Tensor weights = block.weights(s.q, s.k, weight_scratch);
  const Tensor grad = block.queries(s.grad);
  Tensor product = block.scores(grad_scratch);
  const bool drops = block.in.dropout.active();
  if (drops) block.drop(product, weights);
  const Tensor& used = drops ? product : weights;
  add_or_replace(block.seen(s.d.v), used.transpose(1, 2), grad, last);
  at::bmm_out(product, grad, block.seen(s.v).transpose(1, 2));
  if (drops) block.drop(product, product);
  if (!product.is_meta()) {
    causal_softmax_gradient(block.causal(weights), host_data<float>(product));
  }
  Tensor dq = block.queries(s.d.q);
  at::bmm_out(dq, product, block.seen(s.k));
  add_or_replace(block.seen(s.d.k), product.transpose(1, 2), block.queries(s.q), last);
}

// Where a part's result is made: in its own place, or in scratch where there is any.
Tensor place_of(const Tensor& result, const Tensor& scratch, const Part& part) {
  return scratch.defined() ? scratch.narrow(0, 0, part.heads) : part.of(result);
}

}  // namespace

Tensor attention_forward(const AttentionInput& in) {
  const Tensor out = like(in.q);
  const Tensor wide_out = wide_scratch(out);
  const Tensor scratch = scratch_for(in.q);
  for_parts(in.q, [&](const Part& part) {
    const Tensor q = part.wide(in.q);
    const Tensor k = part.wide(in.k);
    const Tensor v = part.wide(in.v);
    const Tensor to = place_of(out, wide_out, part);
    for (std::int64_t first = 0; first < q.size(1); first += kBlock) {
      const Block block{in, part, first, std::min(kBlock, q.size(1) - first)};
      const Tensor weights = block.weights(q, k, scratch);
      if (in.dropout.active()) block.drop(weights, weights);
      Tensor rows = block.queries(to);
      at::bmm_out(rows, weights, block.seen(v));
    }
    if (wide_out.defined()) part.of(out).copy_(to);
  });
  return out;
}

AttentionGradients attention_backward(const AttentionInput& in, const Tensor& grad_output) {
  const AttentionGradients grads{like(in.q), like(in.q), like(in.q)};
  const AttentionGradients wide{wide_scratch(in.q), wide_scratch(in.q), wide_scratch(in.q)};
  const Tensor weight_scratch = scratch_for(in.q);
  const Tensor grad_scratch = scratch_for(in.q);
  for_parts(in.q, [&](const Part& part) {
    const PartTensors tensors{part.wide(in.q),
                              part.wide(in.k),
                              part.wide(in.v),
                              part.wide(grad_output),
                              {place_of(grads.q, wide.q, part), place_of(grads.k, wide.k, part),
                               place_of(grads.v, wide.v, part)}};
    const std::int64_t seq = in.q.size(2);
    for (std::int64_t first = (seq - 1) / kBlock * kBlock; first >= 0; first -= kBlock) {
      block_backward({in, part, first, std::min(kBlock, seq - first)}, tensors, weight_scratch,
                     grad_scratch);
    }
    if (!wide.q.defined()) return;
    part.of(grads.q).copy_(tensors.d.q);
    part.of(grads.k).copy_(tensors.d.k);
    part.of(grads.v).copy_(tensors.d.v);
  });
  return grads;
}

}  // namespace sluice
