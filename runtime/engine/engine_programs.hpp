// The programs that one engine executes, written and checked before it takes memory.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/program/program.hpp"

namespace sluice {

struct EngineSetup;

// A program that the engine's purpose does not need is empty.
struct EnginePrograms {
  Program train;   // a training step
  Program eval;    // forward and loss of one micro-batch
  Program update;  // the deferred update alone
  Program decode;  // some positions of one sequence, with caches

  [[nodiscard]] std::array<const Program*, 4> all() const {
    return {&train, &eval, &update, &decode};
  }
  [[nodiscard]] std::int64_t arena_bytes() const;
  // The states of the program that defines the rank's arrays.
  [[nodiscard]] const StateTable& states() const;
};

// Throws Error if a program breaks a rule of program_check.hpp.
[[nodiscard]] EnginePrograms write_programs(const EngineSetup& setup);

}  // namespace sluice
