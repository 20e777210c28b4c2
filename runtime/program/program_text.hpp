// A step's program for people: a picture for the terminal, and a list for reviews. Pure.
#pragma once

#include <span>
#include <string>

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

// One line an operation: lane, name, micro-batch, bytes that come to life and die with it, bytes
// held outside the persistent ones while it runs (slots, activations, workspace), what it waits
// for.
[[nodiscard]] std::string list(const Program& program);

}  // namespace sluice
