#include "runtime/program/exchange.hpp"

#include "base/bytes.hpp"

namespace sluice {

void append(ExchangeList& list, const Exchange& exchange) {
  if (exchange.times <= 0) return;
  if (!list.empty()) {
    Exchange alike = list.back();
    alike.times = exchange.times;
    if (alike == exchange) {
      list.back().times += exchange.times;
      return;
    }
  }
  list.push_back(exchange);
}

std::int64_t sent_bytes(std::span<const Exchange> list) {
  std::int64_t bytes = 0;
  for (const Exchange& exchange : list) bytes += exchange.bytes * exchange.times;
  return bytes;
}

std::string describe(const Exchange& exchange) {
  std::string text;
  if (exchange.times > 1) text += std::to_string(exchange.times) + " x ";
  text += name_of(exchange.kind);
  if (exchange.bytes > 0) text += " of " + format_bytes(exchange.bytes);
  if (exchange.beside != Beside::kNothing) text.append(" beside ").append(name_of(exchange.beside));
  return text;
}

std::string_view name_of(ExchangeKind kind) {
  switch (kind) {
    case ExchangeKind::kAllReduce:
      return "all-reduce";
    case ExchangeKind::kAllGather:
      return "all-gather";
    case ExchangeKind::kReduceScatter:
      return "reduce-scatter";
    case ExchangeKind::kBarrier:
      return "barrier";
  }
  return "?";
}

std::string_view name_of(ExchangeRanks ranks) {
  switch (ranks) {
    case ExchangeRanks::kTensor:
      return "tensor";
    case ExchangeRanks::kEnds:
      return "ends";
    case ExchangeRanks::kWorld:
      return "world";
  }
  return "?";
}

std::string_view name_of(Beside beside) {
  switch (beside) {
    case Beside::kNothing:
      return "";
    case Beside::kInputProduct:
      return "the input's product";
    case Beside::kWeightProduct:
      return "the weights' product";
    case Beside::kPositions:
      return "gradients of positions";
  }
  return "?";
}

}  // namespace sluice
