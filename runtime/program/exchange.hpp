// Exchanges between ranks that are a part of an operation: of a unit with its tensor-parallel
// ranks, of a gradient's sum over its replicas, of the norm, of a meeting. Pure.
//
// Operations of the lanes comm and pipe are exchanges themselves and declare none.
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
  std::int64_t bytes = 0;  // that a rank sends, each time
  std::int64_t times = 1;  // in a row

  bool operator==(const Exchange&) const = default;
};

// In the order in which a rank finishes them.
using ExchangeList = std::vector<Exchange>;

// Of a unit, one micro-batch. The loss head's `forward` is that of the loss alone; `backward` is
// what gradients add behind it.
struct UnitExchanges {
  ExchangeList forward{};
  ExchangeList backward{};  // from what forward kept
  ExchangeList again{};     // backward where forward kept nothing

  bool operator==(const UnitExchanges&) const = default;
};

// Adds to the list; an exchange like the one before it adds to that one's `times`.
void append(ExchangeList& list, const Exchange& exchange);
// That a rank sends.
[[nodiscard]] std::int64_t sent_bytes(std::span<const Exchange> list);
// "2 x all-reduce of 1.5 MiB beside the weights' product"
[[nodiscard]] std::string describe(const Exchange& exchange);

[[nodiscard]] std::string_view name_of(ExchangeKind kind);
[[nodiscard]] std::string_view name_of(ExchangeRanks ranks);
[[nodiscard]] std::string_view name_of(Beside beside);  // "" of kNothing

}  // namespace sluice
