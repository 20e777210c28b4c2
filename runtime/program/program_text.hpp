// A step's program for people: a picture for the terminal, and a list for reviews. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/program/program.hpp"

namespace sluice {

// A row a lane, an operation a column, left to right in order of issue, broken at 96 columns;
// dashes on the comm row: something is still on the wire while the operation above runs.
// Micro-batches that look alike are drawn once. Releases and batch loads are left out.
//
//   compute          F0    F1    F2 L    B2    B1    B0
//   comm    G0 G1 G2 -- G3 -- G4 --   G2 -- R0 -- R1 -- R2
//
// `unit_names`: by unit, for the legend; may be empty.
[[nodiscard]] std::string draw(const Program& program, std::span<const std::string> unit_names);

// Operations of a kind that have the same exchanges inside.
struct ExchangeUse {
  OpKind kind = OpKind::kForward;
  int exchanges = -1;        // index into Program::exchanges
  std::vector<int> units{};  // in ascending order; none: of groups, or of the step
  int times = 0;             // operations of a step
};
[[nodiscard]] std::vector<ExchangeUse> exchange_uses(const Program& program);
// A line for each exchange inside an operation, "" without any:
//   Forward 1-12: 2 x all-reduce of 1.5 MiB
// Exchanges of all ranks are left out: the norm's few bytes, and a meeting.
[[nodiscard]] std::string list_exchanges(const Program& program);

// One line an operation: lane, name, micro-batch, bytes that come to life and die with it, bytes
// held outside the persistent ones while it runs (slots, activations, workspace), what it waits
// for.
[[nodiscard]] std::string list(const Program& program);

}  // namespace sluice
