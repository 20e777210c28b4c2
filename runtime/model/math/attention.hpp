// Causal self-attention through libtorch's fused operators: heads that share keys, and a sliding
// window.
#pragma once

#include "runtime/model/math/device_constant.hpp"
#include "runtime/model/unit.hpp"

namespace sluice {

// A sliding window: query t sees the keys t - window + 1 .. t. The first `window` queries are plain
// causal attention. The other queries go in blocks of `rows`, each against the rows + window - 1
// keys in reach, under one band mask that all blocks share. No s x s mask exists.
class WindowMask {
 public:
  explicit WindowMask(std::int64_t window);

  [[nodiscard]] std::int64_t window() const { return window_; }
  // fp32 [rows, rows + window - 1]: 0 if query i of the block sees key j of its range (i <= j < i +
  // window), else -inf. The mask of a shorter block is its upper left corner.
  [[nodiscard]] const at::Tensor& band(const at::Device& device) const { return band_.on(device); }

  // Queries of a block.
  [[nodiscard]] static std::int64_t block_rows(std::int64_t window);

 private:
  std::int64_t window_;
  DeviceConstant band_;
};

// q: [B, heads, S, D], k and v: [B, kv_heads, S, D] (any strides), heads a multiple of kv_heads ->
// q's shape. Cheapest on the host: q in memory [B, S, heads, D], as the output; with shared key
// heads all of them in memory [B, heads, S, D]. Dropout on the attention weights takes the s x s
// path, since no fused kernel accepts a mask that can be replayed. `window` null: all keys before a
// query. `packed`: of a model made with ModelOptions::packed_rows, whose queries see the keys of
// their documents (call.documents).
[[nodiscard]] at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k,
                                          const at::Tensor& v, double dropout_p,
                                          const UnitCall& call, std::uint64_t dropout_site,
                                          const WindowMask* window = nullptr, bool packed = false);

}  // namespace sluice
