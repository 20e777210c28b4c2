// Names of tensors end in their shape: C heads of a chunk, R rows (token, query head of the group),
// K keys, S tokens, D the padded head.
#include "runtime/model/device/product_attention.hpp"

#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>

#include <algorithm>
#include <cmath>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "runtime/model/attention_choice.hpp"
#include "runtime/model/device/kernel_calls.hpp"
#include "runtime/model/documents.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice::device {
namespace {

using at::Tensor;

// Queries of a block, where a head's scores fit: more would compute scores above the diagonal in
// vain, fewer make thin products.
constexpr std::int64_t kQueries = 512;
constexpr std::int64_t kFewestQueries = 16;

bool in_fp32(const AttentionInput& in) { return in.q.scalar_type() == c10::ScalarType::Float; }

// How a call is cut.
struct Cut {
  Cut(const AttentionInput& in, std::int64_t bytes, bool backward)
      : seq(in.q.size(2)),
        group(in.q.size(1) / in.k.size(1)),
        heads(in.q.size(0) * in.k.size(1)),
        keys(round_up(seq, 8)),
        width(round_up(in.q.size(3), 8)) {
    const std::int64_t elem = in_fp32(in) ? 4 : 2, tensors = backward ? 2 : 1;
    const std::int64_t score = tensors * (in_fp32(in) ? 4 : 4 + elem);
    // q, k, v and the output, or their gradients besides and that of the output.
    const std::int64_t row = width * (tensors * elem + 4),
                       key = width * 2 * (elem + 4 * (tensors - 1));
    const auto head_bytes = [&] {
      return group * (queries * keys * score + seq * row) + keys * key;
    };
    queries = std::min(seq, kQueries);
    while (head_bytes() > bytes && queries > kFewestQueries) queries /= 2;
    const std::int64_t most = std::max<std::int64_t>(1, bytes / head_bytes());
    const std::int64_t chunks = (heads + most - 1) / most;
    chunk = (heads + chunks - 1) / chunks;
  }

  std::int64_t seq, group, heads, keys, width;
  std::int64_t chunk = 0;    // heads at a time
  std::int64_t queries = 0;  // of a block
};

// Scratch of a call, for its largest chunk; the first elements serve smaller ones.
struct Scratch {
  Scratch(const AttentionInput& in, const Cut& cut, bool backward) {
    const auto make = [&](std::int64_t rows, std::int64_t columns, c10::ScalarType type) {
      return empty_tensor({cut.chunk * rows * columns}, type, in.q.device());
    };
    const c10::ScalarType own = in.q.scalar_type(), wide = c10::ScalarType::Float;
    const std::int64_t rows = cut.seq * cut.group, block_rows = cut.queries * cut.group;
    q = make(rows, cut.width, own);
    k = make(cut.keys, cut.width, own);
    v = make(cut.keys, cut.width, own);
    scores = make(block_rows, cut.keys, wide);
    weights = in_fp32(in) ? scores : make(block_rows, cut.keys, own);
    out = make(rows, cut.width, wide);
    if (!backward) return;
    d_out = make(rows, cut.width, own);
    d_k = make(cut.keys, cut.width, wide);
    d_v = make(cut.keys, cut.width, wide);
    d_weights = make(block_rows, cut.keys, wide);
    d_scores = in_fp32(in) ? d_weights : make(block_rows, cut.keys, own);
  }

  Tensor q, k, v;
  Tensor scores, weights;
  Tensor out;  // of the attention; backward: gradient of q
  Tensor d_out, d_k, d_v;
  Tensor d_weights, d_scores;
};

Tensor cube(const Tensor& memory, std::int64_t heads, std::int64_t rows, std::int64_t columns) {
  return memory.narrow(0, 0, heads * rows * columns).view({heads, rows, columns});
}

// sum (fp32) = a b, or += a b.
void multiply(Tensor sum, const Tensor& a, const Tensor& b, bool accumulate = false) {
  const bool wide = a.scalar_type() == c10::ScalarType::Float;
  if (accumulate && wide) {
    at::baddbmm_out(sum, sum, a, b);
  } else if (accumulate) {
    at::baddbmm_out(sum, sum, a, b, c10::ScalarType::Float);
  } else if (wide) {
    at::bmm_out(sum, a, b);
  } else {
    at::bmm_out(sum, a, b, c10::ScalarType::Float);
  }
}

class ChunkRun {
 public:
  struct Parts {
    const AttentionInput& in;
    const Cut& cut;
    const Scratch& scratch;
    const ProductKernels& kernels;
  };
  ChunkRun(const Parts& parts, std::int64_t first)
      : in_(parts.in),
        cut_(parts.cut),
        at_(parts.scratch),
        kernels_(parts.kernels),
        chunk_{.first = first,
               .heads = std::min(cut_.chunk, cut_.heads - first),
               .kv_heads = in_.k.size(1),
               .seq = cut_.seq} {}

  void forward(const Tensor& out) const {
    copy(false, {queries_of(in_.q, at_.q), keys_of(in_.k, at_.k), keys_of(in_.v, at_.v)});
    const Tensor out_CRD = rows(at_.out);
    for (std::int64_t first = 0; first < cut_.seq; first += cut_.queries) {
      const Block block(*this, first);
      multiply(block.scores, block.queries(rows(at_.q)), block.seen(keys(at_.k)).transpose(1, 2));
      launch(block, false);
      multiply(block.queries(out_CRD), block.weights, block.seen(keys(at_.v)));
    }
    copy(true, {queries_of(out, at_.out)});
  }

  void backward(const Tensor& grad_output, const AttentionHeads& grads) const {
    copy(false, {queries_of(in_.q, at_.q), keys_of(in_.k, at_.k), keys_of(in_.v, at_.v),
                 queries_of(grad_output, at_.d_out)});
    if (in_.window > 0) {
      keys(at_.d_k).zero_();
      keys(at_.d_v).zero_();
    }
    // Without a window the last block sees all keys, so its gradients replace the memory's content.
    const std::int64_t last = (cut_.seq - 1) / cut_.queries * cut_.queries;
    for (std::int64_t first = last; first >= 0; first -= cut_.queries) {
      block_backward(first, in_.window > 0 || first < last);
    }
    copy(true,
         {queries_of(grads.q, at_.out), keys_of(grads.k, at_.d_k), keys_of(grads.v, at_.d_v)});
  }

 private:
  // Queries of the chunk from token `first` on, and the keys that any of them sees.
  struct Block {
    Block(const ChunkRun& run, std::int64_t first_query)
        : group(run.cut_.group),
          first(first_query),
          count(std::min(run.cut_.queries, run.cut_.seq - first_query)),
          first_key(run.in_.window > 0
                        ? std::max<std::int64_t>(0, first - run.in_.window + 1) / 8 * 8
                        : 0),
          key_count(round_up(first + count, 8) - first_key) {
      const auto block = [&](const Tensor& memory) {
        if (!memory.defined()) return Tensor();
        return cube(memory, run.chunk_.heads, count * group, key_count);
      };
      scores = block(run.at_.scores);
      weights = block(run.at_.weights);
      d_weights = block(run.at_.d_weights);
      d_scores = block(run.at_.d_scores);
    }
    [[nodiscard]] Tensor queries(const Tensor& x_CRD) const {
      return x_CRD.narrow(1, first * group, count * group);
    }
    [[nodiscard]] Tensor seen(const Tensor& x_CKD) const {
      return x_CKD.narrow(1, first_key, key_count);
    }
    std::int64_t group, first, count, first_key, key_count;
    Tensor scores, weights, d_weights, d_scores;  // [C, R, K]
  };

  [[nodiscard]] Tensor rows(const Tensor& memory) const {
    return cube(memory, chunk_.heads, cut_.seq * cut_.group, cut_.width);
  }
  [[nodiscard]] Tensor keys(const Tensor& memory) const {
    return cube(memory, chunk_.heads, cut_.keys, cut_.width);
  }

  void block_backward(std::int64_t first, bool accumulate) const {
    const Block block(*this, first);
    const Tensor q = block.queries(rows(at_.q)), k = block.seen(keys(at_.k));
    const Tensor d_out = block.queries(rows(at_.d_out));
    multiply(block.scores, q, k.transpose(1, 2));
    multiply(block.d_weights, d_out, block.seen(keys(at_.v)).transpose(1, 2));
    launch(block, true);
    multiply(block.seen(keys(at_.d_v)), block.weights.transpose(1, 2), d_out, accumulate);
    multiply(block.queries(rows(at_.out)), block.d_scores, k);
    multiply(block.seen(keys(at_.d_k)), block.d_scores.transpose(1, 2), q, accumulate);
  }

  // [B, heads, S, D] of any strides between tokens and samples.
  [[nodiscard]] static cuda::HeadRows lying(const Tensor& x, const Tensor& packed,
                                            std::int64_t rows, std::int64_t group) {
    check(x.stride(3) == 1 && x.stride(1) == x.size(3), "the heads of a token lie side by side");
    return {.tokens = x.data_ptr(),
            .sample_stride = x.stride(0),
            .token_stride = x.stride(2),
            .packed = packed.data_ptr(),
            .rows = rows,
            .group = group};
  }
  [[nodiscard]] cuda::HeadRows queries_of(const Tensor& x, const Tensor& packed) const {
    return lying(x, packed, cut_.seq, cut_.group);
  }
  [[nodiscard]] cuda::HeadRows keys_of(const Tensor& x, const Tensor& packed) const {
    return lying(x, packed, cut_.keys, 1);
  }

  void copy(bool back, std::initializer_list<cuda::HeadRows> tensors) const {
    cuda::HeadCopy args{.of = {},
                        .count = static_cast<int>(tensors.size()),
                        .dtype = dtype_of(in_.q),
                        .chunk = chunk_,
                        .head_dim = in_.q.size(3),
                        .width = cut_.width};
    std::copy(tensors.begin(), tensors.end(), args.of);
    if (kernels_.copy_heads != nullptr) return kernels_.copy_heads(args, back, {});
    block_kernels().copy_heads(args, back, stream_of(in_.q));
  }

  void launch(const Block& block, bool backward) const {
    cuda::AttentionScores args{
        .scores = block.scores.data_ptr<float>(),
        .weights = block.weights.data_ptr(),
        .grad = backward ? block.d_weights.data_ptr<float>() : nullptr,
        .score_grad = backward ? block.d_scores.data_ptr() : nullptr,
        .dtype = dtype_of(in_.q),
        .chunk = chunk_,
        .group = cut_.group,
        .queries = block.count,
        .keys = block.key_count,
        .first_query = block.first,
        .first_key = block.first_key,
        .window = in_.window,
        .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(in_.q.size(3)))),
        .mask = {},
        .first_head = in_.first_head};
    if (in_.documents != nullptr) {
      args.positions = in_.documents->positions(in_.q.device()).data_ptr<std::int64_t>();
    }
    if (in_.dropout.active()) args.mask = mask_of(in_.dropout);
    if (kernels_.attention_scores != nullptr) return kernels_.attention_scores(args, {});
    block_kernels().attention_scores(args, stream_of(in_.q));
  }

  const AttentionInput& in_;
  const Cut& cut_;
  const Scratch& at_;
  const ProductKernels& kernels_;
  const cuda::HeadChunk chunk_;
};

template <class Fn>
void for_chunks(const AttentionInput& in, const ProductKernels& kernels, bool backward, Fn f) {
  const Cut cut(in, kernels.scratch_bytes, backward);
  const Scratch scratch(in, cut, backward);
  if (in.q.is_meta()) return;
  for (std::int64_t first = 0; first < cut.heads; first += cut.chunk) {
    f(ChunkRun({in, cut, scratch, kernels}, first));
  }
}

}  // namespace

bool needs_products(const AttentionInput& in) {
  return in.dropout.active() || !fits_flash(in.q.size(3));
}

AttentionResult product_attention(const AttentionInput& in, const ProductKernels& kernels) {
  const std::int64_t B = in.q.size(0), heads = in.q.size(1), S = in.q.size(2), D = in.q.size(3);
  const Tensor out =
      empty_tensor({B, S, heads, D}, in.q.scalar_type(), in.q.device()).transpose(1, 2);
  for_chunks(in, kernels, false, [&](const ChunkRun& chunk) { chunk.forward(out); });
  return {out};
}

void product_attention_backward(const AttentionInput& in, const Tensor& grad_output,
                                const AttentionHeads& grads, const ProductKernels& kernels) {
  for_chunks(in, kernels, true, [&](const ChunkRun& chunk) { chunk.backward(grad_output, grads); });
}

}  // namespace sluice::device
