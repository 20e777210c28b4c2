// Computes the arena offsets of a program's slots from their lifetimes, before the run. Pure.
#pragma once

#include "runtime/program/program.hpp"

namespace sluice {

inline constexpr std::int64_t kArenaAlignBytes = 256;  // suits cache lines and CUDA's vector loads
inline constexpr std::int64_t kHostAlignBytes = 4096;  // required by O_DIRECT

// Sets arena_offset of every buffer with in_arena, and the sizes of the arenas. Two buffers share
// bytes only if their lifetimes do not overlap. Tries a few orders and keeps the smallest arena.
void assign_arena(Program& program);

}  // namespace sluice
