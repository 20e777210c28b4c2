#include "parallel/comm/exchange_plan.hpp"

#include <algorithm>

#include "base/bytes.hpp"

namespace sluice {

std::int64_t exchange_batch_elems(int size, ReduceDtype dtype) {
  const std::int64_t peers = std::max(1, size - 1);
  const std::int64_t most = (dtype.rounds() ? 16 : 32) * kMiB;
  return std::clamp(most / peers, kMiB / 2, 8 * kMiB) / size_of(dtype.sent);
}

std::int64_t exchange_staging_bytes(int size, std::int64_t total_elems, ReduceDtype dtype) {
  if (size == 1) return 0;
  const std::int64_t ring = std::min(total_elems, 2 * exchange_batch_elems(size, dtype));
  const int rings = size - 1 + (dtype.rounds() ? size : 0);
  return ring * rings * size_of(dtype.sent);
}

ExchangePlan plan_exchange(std::span<const std::int64_t> piece_elems, std::int64_t batch_elems) {
  ExchangePlan plan;
  std::int64_t run = 0;  // elements before the current segment
  for (std::size_t piece = 0; piece < piece_elems.size(); ++piece) {
    for (std::int64_t offset = 0; offset < piece_elems[piece];) {
      if (run % batch_elems == 0) plan.batches.emplace_back();
      const std::int64_t room = batch_elems - run % batch_elems;
      const std::int64_t n = std::min(room, piece_elems[piece] - offset);
      plan.batches.back().push_back({piece, offset, n, run % (2 * batch_elems)});
      offset += n;
      run += n;
    }
  }
  plan.ring_elems = std::min(run, 2 * batch_elems);
  return plan;
}

}  // namespace sluice
