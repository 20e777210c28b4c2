#include "runtime/model/math/attention.hpp"

#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/model/blocks/llama_params.hpp"
#include "runtime/model/documents.hpp"
#include "runtime/model/gpu_path.hpp"
#include "runtime/model/math/block_attention.hpp"
#include "runtime/model/math/dropout.hpp"
#include "runtime/model/math/varlen_attention.hpp"

namespace sluice {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

// Each key head copied for the query heads that share it.
at::Tensor repeat_heads(const at::Tensor& x, std::int64_t heads) {
  const std::int64_t kv_heads = x.size(1);
  if (kv_heads == heads) return x;
  return x.unsqueeze(2)
      .expand({x.size(0), kv_heads, heads / kv_heads, x.size(2), x.size(3)})
      .reshape({x.size(0), heads, x.size(2), x.size(3)});
}

// [B, 1, S, S]: also hides the keys before a query's document.
at::Tensor of_documents(const at::Tensor& unseen, std::int64_t rows, const UnitCall& call) {
  const at::Tensor all = unseen.expand({rows, 1, unseen.size(0), unseen.size(1)}).contiguous();
  if (call.documents == nullptr) return all;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (const Documents::Span& span : call.documents->of_row(row)) {
      all.select(0, row)
          .select(0, 0)
          .narrow(0, span.first, span.count)
          .narrow(1, 0, span.first)
          .fill_(kHidden);
    }
  }
  return all;
}

at::Tensor attention_with_dropout(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  double dropout_p, const UnitCall& call, std::uint64_t site,
                                  const WindowMask* window, bool packed) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  const at::Tensor all = at::full({q.size(2), q.size(2)}, kHidden, q.options());
  at::Tensor unseen = all.triu(1);
  if (window != nullptr) unseen = unseen.add(all.tril(-window->window()));
  if (packed) unseen = of_documents(unseen, q.size(0), call);
  const at::Tensor weights = q.matmul(k.transpose(2, 3)).mul(scale).add(unseen).softmax(-1);
  return dropout(weights, dropout_p, call, site).matmul(v);
}

// The causal call of `samples` rows; each row of its q is of one of these.
struct HostCall {
  const UnitCall& call;
  std::int64_t samples;
  const WindowMask* window;
  bool packed;
};

// The fused operator by name: on the meta device the chooser would take the s x s path, and the dry
// run would not be of the code that runs.
at::Tensor on_host(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   const HostCall& of) {
  if (of.window == nullptr && !of.packed) {
    return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, true));
  }
  BlockAttention in{q, k, v, {}, {}};
  if (of.window != nullptr) in.band = of.window->band(q.device());
  if (of.packed) in.runs = document_runs(of.call, q, of.samples);
  return block_attention(in);
}

// The host's operator wants a key head for each query head. Query heads that share one become the
// heads of a batch row of their own, and see its keys through stride 0: nothing is repeated.
at::Tensor grouped_on_host(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const HostCall& of) {
  const std::int64_t B = q.size(0), heads = q.size(1), S = q.size(2), D = q.size(3);
  const std::int64_t rows = B * k.size(1), group = heads / k.size(1);
  const auto shared = [&](const at::Tensor& x) {
    return x.contiguous().view({rows, 1, S, D}).expand({rows, group, S, D});
  };
  const at::Tensor out =
      on_host(q.contiguous().view({rows, group, S, D}), shared(k), shared(v), of);
  return out.reshape({B, heads, S, D});
}

// On a GPU libtorch chooses the operator. On the meta device libtorch would choose the s x s path,
// so a dry run names the GPU's choice: flash attention in 16 bits (cuDNN's, preferred on some
// cards, keeps the same tensors), memory-efficient attention in fp32. The latter needs a key head
// for each query head: libtorch would take the s x s path for shared ones.
at::Tensor on_device(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& mask) {
  const bool shared = q.size(1) != k.size(1);
  const bool wide = q.scalar_type() == c10::ScalarType::Float;
  if (wide && shared) {
    return on_device(q, repeat_heads(k, q.size(1)), repeat_heads(v, q.size(1)), mask);
  }
  const bool causal = !mask.defined();
  const std::optional<at::Tensor> given = causal ? std::optional<at::Tensor>() : mask;
  if (!q.is_meta()) {
    return at::scaled_dot_product_attention(q, k, v, given, 0.0, causal, std::nullopt, shared);
  }
  if (!wide && causal) {
    return std::get<0>(at::_scaled_dot_product_flash_attention(q, k, v, 0.0, causal, false));
  }
  return std::get<0>(
      at::_scaled_dot_product_efficient_attention(q, k, v, given, true, 0.0, causal));
}

at::Tensor window_on_device(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const WindowMask& mask) {
  const std::int64_t window = mask.window(), S = q.size(2);
  const at::Tensor band = mask.band(q.device()).to(q.scalar_type());
  std::vector<at::Tensor> blocks{
      on_device(q.narrow(2, 0, window), k.narrow(2, 0, window), v.narrow(2, 0, window), {})};
  for (std::int64_t q0 = window; q0 < S; q0 += band.size(0)) {
    const std::int64_t rows = std::min(band.size(0), S - q0);
    const std::int64_t k0 = q0 - window + 1, keys = rows + window - 1;
    blocks.push_back(on_device(q.narrow(2, q0, rows), k.narrow(2, k0, keys), v.narrow(2, k0, keys),
                               band.narrow(0, 0, rows).narrow(1, 0, keys)));
  }
  return at::cat(blocks, 2);
}

}  // namespace

WindowMask::WindowMask(std::int64_t window) : window_(window) {
  const std::int64_t rows = block_rows(window);
  const at::Tensor all = at::full({rows, rows + window - 1}, kHidden, c10::ScalarType::Float);
  band_ = DeviceConstant(all.triu(window).add(all.tril(-1)));
}

// Superfluous keys are about rows / window of the needed ones; a block's fixed cost favours many
// rows.
std::int64_t WindowMask::block_rows(std::int64_t window) {
  return std::clamp<std::int64_t>(window, 32, 256);
}

std::int64_t window_mask_bytes(std::int64_t window) {
  const std::int64_t rows = WindowMask::block_rows(window);
  return rows * (rows + window - 1) * 4;
}

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            double dropout_p, const UnitCall& call, std::uint64_t dropout_site,
                            const WindowMask* window, bool packed) {
  const std::int64_t heads = q.size(1);
  if (window != nullptr && window->window() >= q.size(2)) window = nullptr;
  if (call.training && dropout_p > 0) {
    return attention_with_dropout(q, repeat_heads(k, heads), repeat_heads(v, heads), dropout_p,
                                  call, dropout_site, window, packed);
  }
  if (takes_gpu_path(q)) {
    const bool wide = q.scalar_type() == c10::ScalarType::Float;
    if (packed && call.cache == nullptr && (call.documents != nullptr || q.is_meta())) {
      // The operator for fp32 needs a key head for each query head.
      const auto own = [&](const at::Tensor& x) { return wide ? repeat_heads(x, heads) : x; };
      return varlen_attention(q, own(k), own(v), call,
                              window != nullptr ? window->window() : std::int64_t{0});
    }
    if (window != nullptr) {
      return window_on_device(q, repeat_heads(k, heads), repeat_heads(v, heads), *window);
    }
    return on_device(q, k, v, {});
  }
  const HostCall of{call, q.size(0), window, packed};
  return k.size(1) == heads ? on_host(q, k, v, of) : grouped_on_host(q, k, v, of);
}

}  // namespace sluice
