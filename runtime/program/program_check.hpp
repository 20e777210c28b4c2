// The rules a program must keep, checked without running it. Pure.
#pragma once

#include <string>

#include "runtime/program/program.hpp"

namespace sluice {

// Empty if the program is sound, else the first rule broken:
//   waits point back; indices are in range;
//   a buffer comes to life once and dies once, and an asynchronous operation's slot dies only after
//   it was waited for; no two living slots share bytes;
//   parameters that are gathered have arrived, and are not yet released, where they are read;
//   gradients are reduced after every unit of the micro-batch has written them, and written again
//   only after their reduction is over; norm and update come after all reductions;
//   each unit runs once a micro-batch in each direction, after what it takes its input from;
//   nothing is left alive or on its way at the end.
[[nodiscard]] std::string find_fault(const Program& program);

}  // namespace sluice
