// The shares of a reduce-scatter over NCCL, in the memory of the inputs and in the staging memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <array>
#include <cstdint>
#include <vector>

#include "parallel/comm/communicator.hpp"
#include "parallel/comm/exchange_plan.hpp"

namespace sluice {

// A reduce-scatter's pieces and its staging memory (exchange_plan.hpp).
struct NcclShares {
  const std::vector<ReduceScatterPiece>& pieces;
  ReduceDtype dtype;
  char* staging;
  std::int64_t ring_elems;
  int size;  // of the group

  // The share of rank r: of the inputs, or rounded.
  [[nodiscard]] const char* of(const ExchangeSegment& segment, int r) const {
    if (dtype.rounds()) return staged(segment, size - 1 + r);
    const ReduceScatterPiece& piece = pieces[segment.piece];
    return static_cast<const char*>(piece.input) +
           (r * piece.stride + segment.offset) * size_of(dtype.input);
  }
  [[nodiscard]] char* staged(const ExchangeSegment& segment, int slot) const {
    return staging + (slot * ring_elems + segment.ring) * size_of(dtype.sent);
  }
};

// Rounds the shares of all ranks into the rings that they are sent from, on the calling thread's
// stream. Messages that are sent from there before have run on this stream.
inline void round_shares(const ExchangeBatch& batch, const NcclShares& shares,
                         const c10::Device& device) {
  const auto options = at::TensorOptions().device(device);
  for (const ExchangeSegment& segment : batch) {
    const ReduceScatterPiece& piece = shares.pieces[segment.piece];
    const auto* const input = static_cast<const float*>(piece.input) + segment.offset;
    const std::array<std::int64_t, 2> sizes{shares.size, segment.elems};
    const at::Tensor from = at::from_blob(const_cast<float*>(input), sizes, {piece.stride, 1},
                                          options.dtype(at::kFloat));
    at::from_blob(shares.staged(segment, shares.size - 1), sizes, {shares.ring_elems, 1},
                  options.dtype(at::kBFloat16))
        .copy_(from);
  }
}

}  // namespace sluice
