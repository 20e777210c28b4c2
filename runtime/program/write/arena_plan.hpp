// Static memory for everything a program keeps in slots: offsets from lifetimes, before the run.
// Pure.
#pragma once

#include "runtime/program/program.hpp"

namespace sluice {

inline constexpr std::int64_t kArenaAlignBytes = 256;  // a cache line, and CUDA's vector loads
inline constexpr std::int64_t kHostAlignBytes = 4096;  // what O_DIRECT asks of memory

// Sets arena_offset of every buffer that is in_arena, in its tier's arena, and their sizes. Two
// buffers share bytes only if their lives do not meet. Largest first, each at the lowest offset
// that is free.
void assign_arena(Program& program);

}  // namespace sluice
