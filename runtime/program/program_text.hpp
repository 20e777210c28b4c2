// Prints a step's program: a picture for the terminal and a list for reviews. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/program/program.hpp"

namespace sluice {

// One row per lane and one column per operation, in order of issue, broken at 96 columns. Dashes on
// the comm row mark a transfer that continues while the operation above runs. Micro-batches that
// look alike are drawn once. Releases and batch loads are omitted.
//
//   compute          F0    F1    F2 L    B2    B1    B0
//   comm    G0 G1 G2 -- G3 -- G4 --   G2 -- R0 -- R1 -- R2
//
// `unit_names`: by unit, for the legend; may be empty.
[[nodiscard]] std::string draw(const Program& program, std::span<const std::string> unit_names);

// Operations of one kind with the same exchanges inside.
struct ExchangeUse {
  OpKind kind = OpKind::kForward;
  int exchanges = -1;        // index into Program::exchanges
  std::vector<int> units{};  // ascending; empty: operations of groups or of the step
  int times = 0;             // number of such operations in a step
};
[[nodiscard]] std::vector<ExchangeUse> exchange_uses(const Program& program);
// One line per exchange inside an operation; "" without exchanges:
//   Forward 1-12: 2 x all-reduce of 1.5 MiB
// Exchanges of all ranks (the norm's few bytes, a meeting) are omitted.
[[nodiscard]] std::string list_exchanges(const Program& program);

// One line per operation: lane, name, micro-batch, bytes that come to life and die with it,
// non-persistent bytes held while it runs (slots, activations, workspace), waits.
[[nodiscard]] std::string list(const Program& program);

}  // namespace sluice
