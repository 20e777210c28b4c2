#include "runtime/model/math/block_attention.hpp"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <optional>

#include "runtime/model/documents.hpp"
#include "runtime/model/math/dry_pieces.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

// Queries [q0, q0 + queries) against keys [k0, k0 + keys) of rows [row, row + rows).
struct Block {
  std::int64_t row, rows;
  std::int64_t q0, queries;
  std::int64_t k0, keys;
  bool causal;  // the first block of a document needs no mask

  [[nodiscard]] std::optional<at::Tensor> mask(const at::Tensor& band) const {
    if (causal) return std::nullopt;
    return band.narrow(0, 0, queries).narrow(1, 0, keys);
  }
  [[nodiscard]] at::Tensor of_queries(const at::Tensor& x) const {
    return x.narrow(0, row, rows).narrow(2, q0, queries);
  }
  [[nodiscard]] at::Tensor of_keys(const at::Tensor& x) const {
    return x.narrow(0, row, rows).narrow(2, k0, keys);
  }
};

void add_blocks(std::vector<Block>& blocks, const DocumentRun& run, const at::Tensor& band,
                bool dry) {
  const std::int64_t window = band.defined() ? band.size(1) - band.size(0) + 1 : run.count;
  const std::int64_t plain = std::min(window, run.count);
  blocks.push_back({run.first_row, run.rows, run.first, plain, run.first, plain, true});
  const std::int64_t left = run.count - plain;
  if (left == 0) return;
  const std::int64_t step = band.size(0);
  for (std::int64_t done = 0; done < left; done = next_piece(done, step, left, dry)) {
    const std::int64_t q0 = run.first + window + done;
    const std::int64_t here = std::min(step, left - done);
    blocks.push_back(
        {run.first_row, run.rows, q0, here, q0 - window + 1, here + window - 1, false});
  }
}

std::vector<Block> blocks_of(const BlockAttention& in, const at::Tensor& band) {
  const bool dry = in.q.is_meta();
  std::vector<Block> blocks;
  if (in.runs.empty()) add_blocks(blocks, {0, in.q.size(0), 0, in.q.size(2)}, band, dry);
  for (const DocumentRun& run : in.runs) add_blocks(blocks, run, band, dry);
  return blocks;
}

at::Tensor wide_band(const BlockAttention& in) {
  return in.band.defined() ? in.band.to(wide_type(in.q)) : at::Tensor();
}

}  // namespace

std::vector<DocumentRun> document_runs(const UnitCall& call, const at::Tensor& q,
                                       std::int64_t samples) {
  const std::int64_t each = q.size(0) / samples;
  std::vector<DocumentRun> runs;
  for (std::int64_t b = 0; b < samples; b = next_piece(b, 1, samples, q.is_meta())) {
    for_documents(call.documents, b, q.size(2), [&](const Documents::Span& span) {
      runs.push_back({b * each, each, span.first, span.count});
    });
  }
  return runs;
}

std::tuple<at::Tensor, at::Tensor> block_attention_forward(const BlockAttention& in) {
  const at::Tensor& q = in.q;
  const at::Tensor out = at::empty_like(q);
  const at::Tensor lse =
      at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(wide_type(q))).transpose(1, 2);
  const at::Tensor band = wide_band(in);
  for (const Block& block : blocks_of(in, band)) {
    const auto [block_out, block_lse] = at::_scaled_dot_product_flash_attention_for_cpu(
        block.of_queries(q), block.of_keys(in.k), block.of_keys(in.v), 0.0, block.causal,
        block.mask(band));
    block.of_queries(out).copy_(block_out);
    block.of_queries(lse).copy_(block_lse);
  }
  return {out, lse};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> block_attention_backward(const BlockAttention& in,
                                                                        const at::Tensor& out,
                                                                        const at::Tensor& lse,
                                                                        const at::Tensor& grad) {
  const at::Tensor dq = at::empty_like(in.q);
  const at::Tensor dk = at::zeros(in.k.sizes(), in.k.options());
  const at::Tensor dv = at::zeros(in.v.sizes(), in.v.options());
  const at::Tensor band = wide_band(in);
  for (const Block& block : blocks_of(in, band)) {
    const auto [block_dq, block_dk, block_dv] =
        at::_scaled_dot_product_flash_attention_for_cpu_backward(
            block.of_queries(grad), block.of_queries(in.q), block.of_keys(in.k),
            block.of_keys(in.v), block.of_queries(out), block.of_queries(lse), 0.0, block.causal,
            block.mask(band));
    block.of_queries(dq).copy_(block_dq);
    block.of_keys(dk).add_(block_dk);
    block.of_keys(dv).add_(block_dv);
  }
  return {dq, dk, dv};
}

}  // namespace sluice
