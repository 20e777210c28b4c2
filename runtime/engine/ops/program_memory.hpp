// Device blocks of the step programs, beside parameters and states: the arena with the slots of
// whichever program runs, and the staging of collectives. Made once; nothing is allocated later.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "runtime/program/program.hpp"

namespace sluice {

struct EngineSetup;

struct ProgramMemory {
  // `arena_bytes`: of the program that needs most. `staging`: of reduce-scatters.
  ProgramMemory(const EngineSetup& setup, std::int64_t arena_bytes, at::Tensor staging);

  [[nodiscard]] char* slot(const Buffer& buffer) const {
    return static_cast<char*>(arena.data_ptr()) + buffer.arena_offset;
  }
  [[nodiscard]] at::Tensor bytes_of(const Buffer& buffer) const {
    return arena.narrow(0, buffer.arena_offset, buffer.bytes);
  }

  at::Tensor arena;            // bytes
  at::Tensor bucket_staging;   // bytes: reduce-scatters work in it
  at::Tensor replica_staging;  // fp32 [ranks, piece]: gradients added over replicas
};

}  // namespace sluice
