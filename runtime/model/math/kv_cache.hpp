// Keys and values of a block's earlier positions, in the caller's memory: the input of a forward
// that continues a sequence (UnitCall::cache). With a sliding window the cache rolls: position p
// lies in slot p % slots, and positions that no later query sees are overwritten.
//
// Memory of one sample: keys [kv_heads, slots, D], then values, of the model's dtype. Not
// thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "runtime/model/math/explicit_attention.hpp"

namespace sluice {

class KvCache {
 public:
  // memory: [B, 2 x kv_heads x slots x D] contiguous, made for KvCache::elems of the same model.
  KvCache(const at::Tensor& memory, std::int64_t kv_heads, std::int64_t head_dim);

  // Elements of one sample for sequences of up to `positions` positions; window 0: a query sees all
  // earlier keys.
  [[nodiscard]] static std::int64_t elems(std::int64_t kv_heads, std::int64_t head_dim,
                                          std::int64_t positions, std::int64_t window);

  // Stores keys and values [B, kv_heads, S, D] (any strides) of positions [first, first + S).
  // REQUIRES: positions come in order, from 0.
  void put(std::int64_t first, const at::Tensor& k, const at::Tensor& v) const;

  // Attention of the newest stored position `position` over the cache. q: [B, heads, 1, D] -> the
  // same shape, in memory [B, 1, heads, D]. Scores and sums are fp32.
  [[nodiscard]] at::Tensor attend(std::int64_t position, const at::Tensor& q) const;

 private:
  std::int64_t slots_;
  at::Tensor k_;  // [B, kv_heads, slots, D]
  at::Tensor v_;
};

// Attention of the call's positions over themselves and the cache, which then holds them too. in: q
// [B, heads, S, D], k and v [B, kv_heads, S, D]. `whole`: attention of the call's positions alone;
// used from position 0 on or without a cache.
[[nodiscard]] at::Tensor cached_attention(const AttentionHeads& in, const UnitCall& call,
                                          const std::function<at::Tensor()>& whole);

}  // namespace sluice
