#include "runtime/model/math/kv_cache.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/causal_softmax.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

using at::Tensor;

// Key heads at a time: bounds the fp32 copies of 16-bit keys and values.
constexpr std::int64_t kHeads = 4;

// Softmax of [heads, rows, keys] over all keys; in place with the host's kernel.
Tensor softmax(const Tensor& scores, double scale) {
  if (!scores.is_cpu()) return scores.mul(scale).softmax(-1);
  causal_softmax({.scores = host_data<float>(scores),
                  .heads = scores.size(0) * scores.size(1),
                  .queries = 1,
                  .keys = scores.size(2),
                  .scale = static_cast<float>(scale)});
  return scores;
}

}  // namespace

KvCache::KvCache(const Tensor& memory, std::int64_t kv_heads, std::int64_t head_dim)
    : slots_(memory.size(1) / (2 * kv_heads * head_dim)) {
  const Tensor both = memory.view({memory.size(0), 2, kv_heads, slots_, head_dim});
  k_ = both.select(1, 0);
  v_ = both.select(1, 1);
}

std::int64_t KvCache::elems(std::int64_t kv_heads, std::int64_t head_dim, std::int64_t positions,
                            std::int64_t window) {
  return 2 * kv_heads * head_dim * (window > 0 ? std::min(window, positions) : positions);
}

void KvCache::put(std::int64_t first, const Tensor& k, const Tensor& v) const {
  const std::int64_t end = first + k.size(2);
  for (std::int64_t p = std::max(first, end - slots_); p < end;) {
    const std::int64_t slot = p % slots_;
    const std::int64_t run = std::min(end - p, slots_ - slot);
    k_.narrow(2, slot, run).copy_(k.narrow(2, p - first, run));
    v_.narrow(2, slot, run).copy_(v.narrow(2, p - first, run));
    p += run;
  }
}

// Which slot is which position does not matter: every one that is held is seen.
Tensor KvCache::attend(std::int64_t position, const Tensor& q) const {
  const std::int64_t B = q.size(0), heads = q.size(1), D = q.size(3), kv_heads = k_.size(1);
  const std::int64_t group = heads / kv_heads;
  const std::int64_t held = std::min(position + 1, slots_);
  const double scale = 1.0 / std::sqrt(static_cast<double>(D));
  const Tensor out = empty_tensor({B, heads, D}, q.scalar_type(), q.device());
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t first = 0; first < kv_heads; first += kHeads) {
      const std::int64_t count = std::min(kHeads, kv_heads - first);
      const auto wide = [&](const Tensor& x) {
        return x.select(0, b).narrow(0, first, count).narrow(1, 0, held).to(wide_type(x));
      };
      const auto of_part = [&](const Tensor& x_HD) {
        return x_HD.narrow(0, first * group, count * group).view({count, group, D});
      };
      const Tensor queries = of_part(q.select(0, b).select(1, 0).contiguous()).to(wide_type(q));
      const Tensor weights = softmax(queries.bmm(wide(k_).transpose(1, 2)), scale);
      of_part(out.select(0, b)).copy_(weights.bmm(wide(v_)));
    }
  }
  return out.view({B, 1, heads, D}).transpose(1, 2);
}

Tensor cached_attention(const AttentionHeads& in, const UnitCall& call,
                        const std::function<Tensor()>& whole) {
  if (call.cache == nullptr) return whole();
  check(call.first_position == 0 || in.q.size(2) == 1,
        "positions after the first ones come one at a time");
  const KvCache cache(*call.cache, in.k.size(1), in.k.size(3));
  cache.put(call.first_position, in.k, in.v);
  return call.first_position == 0 ? whole() : cache.attend(call.first_position, in.q);
}

}  // namespace sluice
