#include "runtime/model/math/window_attention.hpp"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "runtime/model/math/dry_pieces.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

// Queries [q0, q0 + rows) against keys [k0, k0 + keys).
struct Block {
  std::int64_t q0;
  std::int64_t rows;
  std::int64_t k0;
  std::int64_t keys;

  // The first block is causal and needs no mask.
  [[nodiscard]] std::optional<at::Tensor> mask(const at::Tensor& band) const {
    if (q0 == 0) return std::nullopt;
    return band.narrow(0, 0, rows).narrow(1, 0, keys);
  }
  [[nodiscard]] at::Tensor of_queries(const at::Tensor& x) const { return x.narrow(2, q0, rows); }
  [[nodiscard]] at::Tensor of_keys(const at::Tensor& x) const { return x.narrow(2, k0, keys); }
};

std::vector<Block> blocks_of(const at::Tensor& q, const at::Tensor& band) {
  const std::int64_t seq = q.size(2);
  const std::int64_t rows = band.size(0);
  const std::int64_t window = band.size(1) - rows + 1;
  check(seq > window, "a window is shorter than the sequence");
  std::vector<Block> blocks{{0, window, 0, window}};
  for (std::int64_t done = 0; done < seq - window;
       done = next_piece(done, rows, seq - window, q.is_meta())) {
    const std::int64_t q0 = window + done;
    const std::int64_t here = std::min(rows, seq - q0);
    blocks.push_back({q0, here, q0 - window + 1, here + window - 1});
  }
  return blocks;
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> window_attention_forward(const WindowCall& call) {
  const at::Tensor& q = call.q;
  const at::Tensor out = at::empty_like(q);
  const at::Tensor lse =
      at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(wide_type(q))).transpose(1, 2);
  const at::Tensor band = call.band.to(wide_type(q));
  for (const Block& block : blocks_of(q, band)) {
    const auto [block_out, block_lse] = at::_scaled_dot_product_flash_attention_for_cpu(
        block.of_queries(q), block.of_keys(call.k), block.of_keys(call.v), 0.0, block.q0 == 0,
        block.mask(band));
    block.of_queries(out).copy_(block_out);
    block.of_queries(lse).copy_(block_lse);
  }
  return {out, lse};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> window_attention_backward(const WindowCall& call,
                                                                         const at::Tensor& out,
                                                                         const at::Tensor& lse,
                                                                         const at::Tensor& grad) {
  const at::Tensor dq = at::empty_like(call.q);
  const at::Tensor dk = at::zeros(call.k.sizes(), call.k.options());
  const at::Tensor dv = at::zeros(call.v.sizes(), call.v.options());
  const at::Tensor band = call.band.to(wide_type(call.q));
  for (const Block& block : blocks_of(call.q, band)) {
    const auto [block_dq, block_dk, block_dv] =
        at::_scaled_dot_product_flash_attention_for_cpu_backward(
            block.of_queries(grad), block.of_queries(call.q), block.of_keys(call.k),
            block.of_keys(call.v), block.of_queries(out), block.of_queries(lse), 0.0, block.q0 == 0,
            block.mask(band));
    block.of_queries(dq).copy_(block_dq);
    block.of_keys(dk).add_(block_dk);
    block.of_keys(dv).add_(block_dv);
  }
  return {dq, dk, dv};
}

}  // namespace sluice
