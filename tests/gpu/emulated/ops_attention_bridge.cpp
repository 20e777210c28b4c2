// Attention in fp32 from its formulas: S = scale q k^T behind a mask, lse = log sum exp S,
// P = exp(S - lse), out = P v. The backward takes P from the kept lse, and
// dS = P (dout v^T - sum(dout out)) from the kept out, as libtorch's kernels do.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>

#include "tests/gpu/emulated/ops.hpp"

namespace sluice::emulated {
namespace {

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Where logsumexp of a query is.
enum class LseLayout {
  kHeadsTokens,    // dense: [batch, heads, queries]; documents: [heads, tokens]
  kDocumentsHeads  // [batch or documents, heads, longest], rounded up to whole blocks of 32
};

struct Call {
  Tensor q, k, v;         // [batch, tokens, heads, D] or [tokens, heads, D]
  Tensor ends_q, ends_k;  // of documents, int32; undefined: each of the batch is one
  std::int64_t longest_q = 0, longest_k = 0;
  bool causal = false, from_end = false;  // the last query sees the last key
  std::int64_t before = -1, behind = -1;  // keys beside a query's own that it sees; below 0: all
  double scale = 0;
  LseLayout layout = LseLayout::kHeadsTokens;
};

void refuse(bool wrong, const char* what) {
  if (wrong) throw std::runtime_error(std::string(what) + " is not computed");
}

// --- documents ---

// A document's share of the tensors: views, [heads, tokens, D], and [heads, tokens] of lse.
struct Document {
  std::int64_t row = 0, number = 0;
  std::int64_t first_q = 0, count_q = 0, first_k = 0, count_k = 0;
};

Tensor heads_of(const Tensor& x, std::int64_t row, std::int64_t first, std::int64_t count) {
  const Tensor all = x.dim() == 4 ? x.select(0, row) : x;
  return all.narrow(0, first, count).transpose(0, 1);
}

std::int64_t at_index(const Tensor& x, std::int64_t i) { return x.data_ptr<std::int32_t>()[i]; }

void check_ends(const Tensor& ends, std::int64_t tokens, std::int64_t longest) {
  for (std::int64_t i = 0; i + 1 < ends.numel(); ++i) {
    const std::int64_t first = at_index(ends, i), end = at_index(ends, i + 1);
    if (first < 0 || first > end || end > tokens || end - first > longest) {
      throw std::runtime_error("document " + std::to_string(i) + " is from token " +
                               std::to_string(first) + " to " + std::to_string(end) + " of " +
                               std::to_string(tokens) + ", the longest has " +
                               std::to_string(longest));
    }
  }
}

std::vector<Document> documents_of(const Call& call) {
  std::vector<Document> all;
  const std::int64_t dim = call.q.dim() == 4 ? 1 : 0;
  const std::int64_t queries = call.q.size(dim), keys = call.k.size(dim);
  if (!call.ends_q.defined()) {
    for (std::int64_t row = 0; row < call.q.size(0); ++row) {
      all.push_back({row, row, 0, queries, 0, keys});
    }
    return all;
  }
  check_ends(call.ends_q, queries, call.longest_q);
  check_ends(call.ends_k, keys, call.longest_k);
  for (std::int64_t i = 0; i + 1 < call.ends_q.numel(); ++i) {
    const std::int64_t q = at_index(call.ends_q, i), k = at_index(call.ends_k, i);
    all.push_back({0, i, q, at_index(call.ends_q, i + 1) - q, k, at_index(call.ends_k, i + 1) - k});
  }
  return all;
}

Tensor lse_of(const Call& call, const Tensor& lse, const Document& d) {
  if (call.layout == LseLayout::kDocumentsHeads) {
    return lse.select(0, d.number).narrow(1, 0, d.count_q);
  }
  return (lse.dim() == 3 ? lse.select(0, d.row) : lse).narrow(1, d.first_q, d.count_q);
}

// --- one document ---

Tensor wide(const Tensor& x) { return x.to(c10::ScalarType::Float); }

// A key head for each query head.
Tensor repeated(const Tensor& x, std::int64_t heads) {
  return wide(x).repeat_interleave(heads / x.size(0), 0);
}

// The scores that no query may see are -inf.
Tensor scores(const Call& call, const Document& d, const Tensor& q, const Tensor& k) {
  const auto longs = at::TensorOptions(c10::ScalarType::Long);
  const std::int64_t shift = call.from_end ? d.count_k - d.count_q : 0;
  const Tensor own = at::arange(d.count_q, longs).unsqueeze(1) + shift;
  const Tensor key = at::arange(d.count_k, longs).unsqueeze(0);
  Tensor hidden = at::zeros({d.count_q, d.count_k}, longs.dtype(c10::ScalarType::Bool));
  if (call.causal) hidden = hidden.logical_or(key.gt(own));
  if (call.before >= 0) hidden = hidden.logical_or(key.lt(own - call.before));
  if (call.behind >= 0) hidden = hidden.logical_or(key.gt(own + call.behind));
  return (at::matmul(q, k.transpose(1, 2)) * call.scale).masked_fill(hidden, -kInfinity);
}

// `lse`: undefined where nobody asks for it.
void forward(const Call& call, const Tensor& out, const Tensor& lse) {
  for (const Document& d : documents_of(call)) {
    if (d.count_q == 0) continue;
    const Tensor q = wide(heads_of(call.q, d.row, d.first_q, d.count_q));
    const Tensor k = repeated(heads_of(call.k, d.row, d.first_k, d.count_k), q.size(0));
    const Tensor v = repeated(heads_of(call.v, d.row, d.first_k, d.count_k), q.size(0));
    const Tensor s = scores(call, d, q, k);
    // A query that sees no key has out = 0.
    const Tensor sums = s.logsumexp(-1);
    const Tensor kept = sums.masked_fill(sums.eq(-kInfinity), kInfinity);
    const Tensor p = (s - kept.unsqueeze(-1)).exp();
    heads_of(out, d.row, d.first_q, d.count_q).copy_(at::matmul(p, v));
    if (lse.defined()) lse_of(call, lse, d).copy_(kept);
  }
}

struct Kept {
  Tensor out, lse, grad;
};

// The sum over the query heads of each key head.
void put_shared(const Tensor& to, const Tensor& grads) {
  const std::int64_t heads = to.size(0), group = grads.size(0) / heads;
  to.copy_(grads.reshape({heads, group, grads.size(1), grads.size(2)}).sum(1));
}

void backward(const Call& call, const Kept& kept, const std::vector<Tensor>& grads) {
  for (const Document& d : documents_of(call)) {
    if (d.count_q == 0) continue;
    const Tensor q = wide(heads_of(call.q, d.row, d.first_q, d.count_q));
    const Tensor k = repeated(heads_of(call.k, d.row, d.first_k, d.count_k), q.size(0));
    const Tensor v = repeated(heads_of(call.v, d.row, d.first_k, d.count_k), q.size(0));
    const Tensor grad = wide(heads_of(kept.grad, d.row, d.first_q, d.count_q));
    const Tensor out = wide(heads_of(kept.out, d.row, d.first_q, d.count_q));
    const Tensor p = (scores(call, d, q, k) - lse_of(call, kept.lse, d).unsqueeze(-1)).exp();
    const Tensor delta = (grad * out).sum(-1, /*keepdim=*/true);
    const Tensor ds = p * (at::matmul(grad, v.transpose(1, 2)) - delta) * call.scale;
    heads_of(grads[0], d.row, d.first_q, d.count_q).copy_(at::matmul(ds, k));
    put_shared(heads_of(grads[1], d.row, d.first_k, d.count_k), at::matmul(ds.transpose(1, 2), q));
    put_shared(heads_of(grads[2], d.row, d.first_k, d.count_k),
               at::matmul(p.transpose(1, 2), grad));
  }
}

// --- arguments in the order of libtorch's schemas ---

Tensor tensor_or_none(const IValue& x) { return x.isTensor() ? x.toTensor() : Tensor(); }
std::int64_t int_or(const IValue& x, std::int64_t otherwise) {
  return x.isNone() ? otherwise : x.toInt();
}
double scale_of(const IValue& x, const Tensor& q) {
  return x.isNone() ? 1 / std::sqrt(static_cast<double>(q.size(-1))) : x.toDouble();
}

// Arguments from cum_seq_q to is_causal begin at `ends`, scale and windows at `scale`.
Call flash_call(const Stack& a, std::size_t q, std::size_t ends, std::size_t scale) {
  refuse(a[ends + 4].toDouble() != 0, "attention with dropout");
  Call call{.q = a[q].toTensor(),
            .k = a[q + 1].toTensor(),
            .v = a[q + 2].toTensor(),
            .ends_q = tensor_or_none(a[ends]),
            .ends_k = tensor_or_none(a[ends + 1]),
            .longest_q = a[ends + 2].toInt(),
            .longest_k = a[ends + 3].toInt(),
            .causal = a[ends + 5].toBool(),
            .from_end = true,
            .before = int_or(a[scale + 1], -1),
            .behind = int_or(a[scale + 2], -1)};
  call.scale = scale_of(a[scale], call.q);
  return call;
}

void flash_forward(const Stack& a, const std::vector<Tensor>& results) {
  refuse(a[13].isTensor() || a[14].isTensor(), "flash attention with seqused_k or alibi_slopes");
  forward(flash_call(a, 0, 3, 10), results[0], results[1]);
}

void flash_backward(const Stack& a, const std::vector<Tensor>& results) {
  backward(flash_call(a, 1, 6, 14),
           {.out = a[4].toTensor(), .lse = a[5].toTensor(), .grad = a[0].toTensor()}, results);
}

// custom_mask_type
constexpr std::int64_t kFromBegin = 1, kFromEnd = 2;

Call efficient_call(const Stack& a, std::size_t q, std::int64_t mask, const IValue& scale,
                    const IValue& window) {
  Call call;
  call.q = a[q].toTensor();
  call.k = a[q + 1].toTensor();
  call.v = a[q + 2].toTensor();
  call.causal = mask == kFromBegin || mask == kFromEnd;
  call.from_end = mask == kFromEnd;
  call.before = int_or(window, 0) - 1;
  call.scale = scale_of(scale, call.q);
  call.layout = LseLayout::kDocumentsHeads;
  return call;
}

void efficient_forward(const Stack& a, const std::vector<Tensor>& results) {
  refuse(a[3].isTensor() || a[12].isTensor(), "efficient attention with bias or seqlen_k");
  refuse(a[8].toDouble() != 0, "attention with dropout");
  Call call = efficient_call(a, 0, a[9].toInt(), a[11], a[13]);
  call.ends_q = tensor_or_none(a[4]);
  call.ends_k = tensor_or_none(a[5]);
  call.longest_q = int_or(a[6], 0);
  call.longest_k = int_or(a[7], 0);
  const bool keeps = a[10].toBool();
  if (keeps) results[1].fill_(kInfinity);  // behind a document's last query
  forward(call, results[0], keeps ? results[1] : Tensor());
}

void efficient_backward(const Stack& a, const std::vector<Tensor>& results) {
  refuse(a[4].isTensor() && a[4].toTensor().defined(), "efficient attention with bias");
  refuse(a[11].toDouble() != 0, "attention with dropout");
  Call call = efficient_call(a, 1, a[14].toInt(), a[16], a[18]);
  call.ends_q = tensor_or_none(a[6]);
  call.ends_k = tensor_or_none(a[7]);
  call.longest_q = a[8].toInt();
  call.longest_k = a[9].toInt();
  backward(call, {.out = a[5].toTensor(), .lse = a[10].toTensor(), .grad = a[0].toTensor()},
           results);
}

}  // namespace

std::vector<Operator> attention_operators() {
  return {{"_flash_attention_forward", "", flash_forward},
          {"_flash_attention_backward", "", flash_backward},
          {"_efficient_attention_forward", "", efficient_forward},
          {"_efficient_attention_backward", "", efficient_backward}};
}

}  // namespace sluice::emulated
