#include "runtime/model/math/explicit_attention.hpp"

#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/causal_softmax.hpp"
#include "kernels/cpu/philox.hpp"
#include "runtime/model/device/device_attention.hpp"
#include "runtime/model/device/product_attention.hpp"
#include "runtime/model/documents.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/gpu_path.hpp"
#include "runtime/model/math/dry_pieces.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

using at::Tensor;

// Queries of a block: fewer make thin GEMMs, more compute scores above the diagonal in vain.
constexpr std::int64_t kBlock = 64;

// Key heads at a time: bounds the scratch, and suffices to keep a batched GEMM's threads busy.
constexpr std::int64_t kHeads = 4;

std::int64_t heads_at_once(const AttentionInput& in) { return std::min(kHeads, in.k.size(1)); }

// Some key heads of one sample, and of the query heads that share each of them the one numbered
// `member`: as many query as key heads.
struct Part {
  std::int64_t b, first, heads, group;
  std::int64_t member = 0;

  // [heads, S, D] of k, v or their gradients.
  [[nodiscard]] Tensor keys_of(const Tensor& x) const {
    return x.select(0, b).narrow(0, first, heads);
  }
  // [heads, S, D] of q, the output or their gradients.
  [[nodiscard]] Tensor queries_of(const Tensor& x) const {
    const std::int64_t from = first * group + member;
    return x.select(0, b).slice(0, from, from + (heads - 1) * group + 1, group);
  }
};

template <class Fn>
void for_parts(const AttentionInput& in, Fn f) {
  const std::int64_t samples = in.q.size(0), kv_heads = in.k.size(1);
  const bool dry = in.q.is_meta();
  for (std::int64_t b = 0; b < samples; b = next_piece(b, 1, samples, dry)) {
    for (std::int64_t head = 0; head < kv_heads; head = next_piece(head, kHeads, kv_heads, dry)) {
      f(Part{b, head, std::min(kHeads, kv_heads - head), in.q.size(1) / kv_heads});
    }
  }
}

// The tensor in fp32: itself if it is fp32 already.
Tensor wide(const Tensor& x) { return x.to(c10::ScalarType::Float); }

// fp32 [heads, S, D] for the largest part if x is 16 bits; else undefined.
Tensor wide_scratch(const AttentionInput& in) {
  if (in.q.scalar_type() == c10::ScalarType::Float) return {};
  return empty_tensor({heads_at_once(in), in.q.size(2), in.q.size(3)}, c10::ScalarType::Float,
                      in.q.device());
}

// Memory of a part's result: scratch if it exists, else the final memory.
Tensor place_of(const Tensor& own, const Tensor& scratch) {
  return scratch.defined() ? scratch.narrow(0, 0, own.size(0)) : own;
}

void deliver(const Tensor& own, const Tensor& made) {
  if (!made.is_same(own)) own.copy_(made);
}

// The queries [first, first + count) of a part, with scratch for their scores. Their document
// begins at position `document`.
struct Block {
  const AttentionInput& in;
  const Part& part;
  std::int64_t document, first, count;

  [[nodiscard]] std::int64_t first_key() const {
    return in.window > 0 ? std::max(document, first - in.window + 1) : document;
  }
  [[nodiscard]] std::int64_t keys() const { return first + count - first_key(); }
  [[nodiscard]] Tensor queries(const Tensor& x) const { return x.narrow(1, first, count); }
  [[nodiscard]] Tensor seen(const Tensor& x) const { return x.narrow(1, first_key(), keys()); }
  [[nodiscard]] Tensor scores(const Tensor& scratch) const {
    return scratch.narrow(0, 0, part.heads * count * keys()).view({part.heads, count, keys()});
  }
  [[nodiscard]] CausalBlock causal(const Tensor& weights) const {
    return {.scores = host_data<float>(weights),
            .heads = part.heads,
            .queries = count,
            .keys = keys(),
            .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(in.q.size(3)))),
            .first_key = first_key(),
            .window = in.window};
  }
  // out may be weights.
  void drop(const Tensor& out, const Tensor& weights) const {
    if (out.is_meta()) return;
    const UnitCall& call = in.dropout.call;
    const std::array<std::uint64_t, 3> key{static_cast<std::uint64_t>(call.step),
                                           static_cast<std::uint64_t>(call.first_sample + part.b),
                                           in.dropout.site};
    drop_weights(causal(weights), host_data<float>(weights), host_data<float>(out),
                 {.p = in.dropout.p,
                  .seed = call.seed,
                  .stream = hash_stream(key),
                  .first_head = in.first_head + part.first * part.group + part.member,
                  .head_step = part.group,
                  .seq = in.q.size(2)});
  }
  // Softmax of the scores, before dropout.
  [[nodiscard]] Tensor weights(const Tensor& q, const Tensor& k, const Tensor& scratch) const {
    Tensor weights = scores(scratch);
    at::bmm_out(weights, queries(q), seen(k).transpose(1, 2));
    if (!weights.is_meta()) causal_softmax(causal(weights));
    return weights;
  }
};

Tensor scratch_for(const AttentionInput& in) {
  const std::int64_t seq = in.q.size(2), rows = std::min(kBlock, seq);
  const std::int64_t keys = in.window > 0 ? std::min(seq, in.window - 1 + rows) : seq;
  return empty_tensor({heads_at_once(in) * rows * keys}, c10::ScalarType::Float, in.q.device());
}

struct PartTensors {
  Tensor q, k, v, grad;
  AttentionHeads d;  // fp32
  Tensor weight_scratch, grad_scratch;
};

struct PartOutput {
  Tensor q, k, v, out;  // fp32
  Tensor scratch;
};

void add_or_replace(Tensor sum, const Tensor& a, const Tensor& b, bool replace) {
  if (replace) {
    at::bmm_out(sum, a, b);
  } else {
    at::baddbmm_out(sum, sum, a, b);
  }
}

// `fresh`: dk and dv of the keys it sees are replaced, else added to.
void block_backward(const Block& block, const PartTensors& s, bool fresh) {
  const Tensor weights = block.weights(s.q, s.k, s.weight_scratch);
  const Tensor grad = block.queries(s.grad);
  Tensor product = block.scores(s.grad_scratch);
  const bool drops = block.in.dropout.active();
  if (drops) block.drop(product, weights);
  const Tensor& used = drops ? product : weights;
  add_or_replace(block.seen(s.d.v), used.transpose(1, 2), grad, fresh);
  at::bmm_out(product, grad, block.seen(s.v).transpose(1, 2));
  if (drops) block.drop(product, product);
  if (!product.is_meta()) {
    causal_softmax_gradient(block.causal(weights), host_data<float>(product));
  }
  Tensor dq = block.queries(s.d.q);
  at::bmm_out(dq, product, block.seen(s.k));
  add_or_replace(block.seen(s.d.k), product.transpose(1, 2), block.queries(s.q), fresh);
}

// One query head of every key head of the part. Without a window the last block of a document sees
// all its keys: the first member's gradients replace the content of dk and dv.
void member_backward(const AttentionInput& in, const Part& part, const PartTensors& tensors) {
  for_documents(in.documents, part.b, in.q.size(2), [&](const Documents::Span& span) {
    const std::int64_t last_first = (span.count - 1) / kBlock * kBlock;
    for (std::int64_t back = 0; back < span.count;
         back = next_piece(back, kBlock, span.count, in.q.is_meta())) {
      const std::int64_t first = last_first - back;
      const Block block{in, part, span.first, span.first + first,
                        std::min(kBlock, span.count - first)};
      block_backward(block, tensors, in.window == 0 && part.member == 0 && back == 0);
    }
  });
}

void member_forward(const AttentionInput& in, const Part& part, const PartOutput& to) {
  for_documents(in.documents, part.b, in.q.size(2), [&](const Documents::Span& span) {
    for (std::int64_t first = 0; first < span.count;
         first = next_piece(first, kBlock, span.count, in.q.is_meta())) {
      const Block block{in, part, span.first, span.first + first,
                        std::min(kBlock, span.count - first)};
      const Tensor weights = block.weights(to.q, to.k, to.scratch);
      if (in.dropout.active()) block.drop(weights, weights);
      Tensor rows = block.queries(to.out);
      at::bmm_out(rows, weights, block.seen(to.v));
    }
  });
}

}  // namespace

AttentionResult attention_forward(const AttentionInput& in) {
  if (takes_gpu_path(in.q)) return device::attention_forward(in);
  const std::int64_t B = in.q.size(0), heads = in.q.size(1), seq = in.q.size(2), D = in.q.size(3);
  const Tensor out =
      empty_tensor({B, seq, heads, D}, in.q.scalar_type(), in.q.device()).transpose(1, 2);
  const Tensor wide_out = wide_scratch(in);
  const Tensor scratch = scratch_for(in);
  for_parts(in, [&](Part part) {
    const Tensor k = wide(part.keys_of(in.k));
    const Tensor v = wide(part.keys_of(in.v));
    for (part.member = 0; part.member < part.group;
         part.member = next_piece(part.member, 1, part.group, in.q.is_meta())) {
      const Tensor q = wide(part.queries_of(in.q));
      const Tensor own = part.queries_of(out);
      const Tensor to = place_of(own, wide_out);
      member_forward(in, part, {q, k, v, to, scratch});
      deliver(own, to);
    }
  });
  return {out};
}

bool attention_sums(const AttentionInput& in) {
  return takes_gpu_path(in.q) && !device::needs_products(in);
}

void attention_backward(const AttentionInput& in, const AttentionResult& kept,
                        const Tensor& grad_output, const AttentionHeads& grads) {
  if (takes_gpu_path(in.q)) return device::attention_backward(in, kept, grad_output, grads);
  const AttentionHeads scratch{wide_scratch(in), wide_scratch(in), wide_scratch(in)};
  const Tensor weight_scratch = scratch_for(in);
  const Tensor grad_scratch = scratch_for(in);
  for_parts(in, [&](Part part) {
    const Tensor k = wide(part.keys_of(in.k));
    const Tensor v = wide(part.keys_of(in.v));
    const Tensor own_k = part.keys_of(grads.k);
    const Tensor own_v = part.keys_of(grads.v);
    const Tensor d_k = place_of(own_k, scratch.k);
    const Tensor d_v = place_of(own_v, scratch.v);
    if (in.window > 0) {
      d_k.zero_();
      d_v.zero_();
    }
    for (part.member = 0; part.member < part.group;
         part.member = next_piece(part.member, 1, part.group, in.q.is_meta())) {
      const Tensor own_q = part.queries_of(grads.q);
      const Tensor d_q = place_of(own_q, scratch.q);
      member_backward(in, part,
                      {wide(part.queries_of(in.q)),
                       k,
                       v,
                       wide(part.queries_of(grad_output)),
                       {d_q, d_k, d_v},
                       weight_scratch,
                       grad_scratch});
      deliver(own_q, d_q);
    }
    deliver(own_k, d_k);
    deliver(own_v, d_v);
  });
}

}  // namespace sluice
