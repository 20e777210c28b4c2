// Exchanges that are part of an operation: a unit's with its tensor-parallel ranks, a gradient's
// sum over replicas, the norm's, a meeting's. Pure.
//
// Operations of the lanes comm and pipe are exchanges themselves and list none.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

enum class ExchangeKind {
  kAllReduce,  // a reduce-scatter, then an all-gather
  kAllGather,
  kReduceScatter,
  kBarrier,
};

enum class ExchangeRanks {
  kTensor,  // the tensor-parallel ranks
  kEnds,    // the first and the last pipeline stage
  kWorld,   // all ranks of the mesh
};

// Computation of the unit between the start of an exchange and the use of its result.
enum class Beside {
  kNothing,  // the unit waits for the exchange
  kInputProduct,
  kWeightProduct,
  kPositions,  // the gradients of positions
};

struct Exchange {
  ExchangeKind kind = ExchangeKind::kAllReduce;
  ExchangeRanks ranks = ExchangeRanks::kTensor;
  Beside beside = Beside::kNothing;
  std::int64_t bytes = 0;  // sent by a rank, each time
  std::int64_t times = 1;  // consecutive repetitions

  bool operator==(const Exchange&) const = default;
};

// Numbers of a rank in the norm's exchange before its sums of squares: its loss, its vote and its
// learned targets, all in fp64.
inline constexpr int kNormScalars = 3;

// Exchanges in the order in which a rank completes them.
using ExchangeList = std::vector<Exchange>;

// The exchanges of a unit for one micro-batch. For the loss head, `forward` holds the loss's
// exchanges, and `backward` the exchanges that the gradients add after `forward`.
struct UnitExchanges {
  ExchangeList forward{};
  ExchangeList backward{};  // without recomputation
  ExchangeList again{};     // backward with recomputation

  bool operator==(const UnitExchanges&) const = default;
};

// Appends to the list. An exchange equal to the last one adds to the last one's `times`.
void append(ExchangeList& list, const Exchange& exchange);
// Bytes that a rank sends.
[[nodiscard]] std::int64_t sent_bytes(std::span<const Exchange> list);
// "2 x all-reduce of 1.5 MiB beside the weights' product"
[[nodiscard]] std::string describe(const Exchange& exchange);

[[nodiscard]] std::string_view name_of(ExchangeKind kind);
[[nodiscard]] std::string_view name_of(ExchangeRanks ranks);
[[nodiscard]] std::string_view name_of(Beside beside);  // "" for kNothing

}  // namespace sluice
