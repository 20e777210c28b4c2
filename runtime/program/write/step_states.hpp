// The table of states (zero/state_table.hpp) of a step's shape and chunks. Pure.
#pragma once

#include <span>

#include "runtime/program/program.hpp"
#include "runtime/program/step_shape.hpp"

namespace sluice {

// Without chunks: no second places. `adds_on_host`: the program has the host add reduced gradients
// to others (kStoreGrads with `accumulate`).
[[nodiscard]] StateTable step_states(const StepShape& shape, std::span<const Chunk> chunks = {},
                                     bool adds_on_host = false);

// Bytes of one record of the image of these chunks; 0 where none has a second place.
[[nodiscard]] std::int64_t image_bytes(const StepShape& shape, std::span<const Chunk> chunks);

}  // namespace sluice
