// Where the shares of a reduce-scatter are: in the inputs, and in the rings of its staging memory.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/comm/communicator.hpp"
#include "parallel/comm/exchange_plan.hpp"

namespace sluice {

// A reduce-scatter's pieces and its staging memory (exchange_plan.hpp). The rings of the peers come
// first, by slot; then, where shares are rounded, those of all ranks.
struct ExchangeShares {
  const std::vector<ReduceScatterPiece>& pieces;
  ReduceDtype dtype;
  char* staging;
  std::int64_t ring_elems;
  int size;  // of the group

  // The share of rank r as it is sent and added: of the inputs, or rounded.
  [[nodiscard]] const char* of(const ExchangeSegment& segment, int r) const {
    return dtype.rounds() ? rounded(segment, r) : given(segment, r);
  }
  [[nodiscard]] const char* given(const ExchangeSegment& segment, int r) const {
    const ReduceScatterPiece& piece = pieces[segment.piece];
    return static_cast<const char*>(piece.input) +
           (r * piece.stride + segment.offset) * size_of(dtype.input);
  }
  [[nodiscard]] char* rounded(const ExchangeSegment& segment, int r) const {
    return staged(segment, size - 1 + r);
  }
  [[nodiscard]] char* staged(const ExchangeSegment& segment, int slot) const {
    return staging + (slot * ring_elems + segment.ring) * size_of(dtype.sent);
  }
};

}  // namespace sluice
