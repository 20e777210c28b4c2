// Between the engine's states and a checkpoint's files, on whatever tier they are, through a few
// MiB of host memory. Nothing here is collective: each rank writes its share of every parameter and
// reads what it owns.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/io/checkpoint_load.hpp"
#include "runtime/checkpoint/io/checkpoint_save.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/engine/state_pieces.hpp"

namespace sluice {

// Called now and then with what has been moved so far, so that a rank that only takes long is not
// taken for one that hangs.
using StateProgress = std::function<void(std::int64_t bytes)>;

// A range for each of StatePiece::states; moments in StatePiece::moments.
[[nodiscard]] std::vector<StateRange> ranges_of(const std::vector<StatePiece>& pieces);

// Straight to the file. Passes at most `staging.size()` elements at a time; the engine, the writer
// and a conversion to 16 bits may each hold as much again. REQUIRES: engine.settle(); the writer's
// ranges are ranges_of(pieces); staging is not empty.
void write_states(Engine& engine, const std::vector<StatePiece>& pieces, RankWriter& writer,
                  std::span<float> staging, const StateProgress& progress);

// The same in two parts: to memory of bytes_of(pieces), in the order of the ranges, and from there
// to the file, which another thread may do.
void copy_states(Engine& engine, const std::vector<StatePiece>& pieces,
                 std::span<std::byte> snapshot, std::span<float> staging);
void write_snapshot(const std::vector<StatePiece>& pieces, std::span<const std::byte> snapshot,
                    RankWriter& writer, const StateProgress& progress);

// Throws ConfigError unless the checkpoint's parameters are the whole model's, by name and shape.
// `spec`: of any part of it.
void check_same_model(const ModelSpec& spec, const Checkpoint& checkpoint);

// Puts the checkpoint's states into the pieces (owned_pieces), whatever layout, tier and type they
// were saved from; fp32 moments that come to be held in 16 bits are rounded to nearest. Moments
// that the checkpoint does not have (it is of weights alone) become zero: false is returned. Passes
// at most memory.staging.size() elements at a time, of which the engine may hold as much again,
// while the disk is read for those behind them. Throws CheckpointError, IoError; the engine's
// states are then a mixture. REQUIRES: engine.settle().
struct ReadMemory {
  std::span<float> staging;    // not empty
  std::span<std::byte> ahead;  // as Checkpoint::read_in_parts; begins on a page
};
bool read_states(Engine& engine, const std::vector<StatePiece>& pieces, Checkpoint& checkpoint,
                 const ReadMemory& memory, const StateProgress& progress);

}  // namespace sluice
