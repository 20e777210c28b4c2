// Copies states between the engine, on any tier, and a checkpoint's files, through a few MiB of
// host memory. No call is collective: each rank writes its part of every parameter and reads the
// pieces that the rank owns.
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

// Called at intervals with the bytes moved so far, so that the watchdog does not take a slow rank
// for a hung rank.
using StateProgress = std::function<void(std::int64_t bytes)>;

// One range for each of StatePiece::states; moments have the type StatePiece::moments.
[[nodiscard]] std::vector<StateRange> ranges_of(const std::vector<StatePiece>& pieces);

// Writes the states directly to the file, at most `staging.size()` elements at a time. The engine,
// the writer and a conversion to 16 bits may each hold as much again. REQUIRES: engine.settle();
// the writer's ranges are ranges_of(pieces); staging is not empty.
void write_states(Engine& engine, const std::vector<StatePiece>& pieces, RankWriter& writer,
                  std::span<float> staging, const StateProgress& progress);

// write_states() in two parts. copy_states() fills a snapshot of bytes_of(pieces) in the order of
// the ranges. write_snapshot() writes the snapshot to the file, also on another thread.
void copy_states(Engine& engine, const std::vector<StatePiece>& pieces,
                 std::span<std::byte> snapshot, std::span<float> staging);
void write_snapshot(const std::vector<StatePiece>& pieces, std::span<const std::byte> snapshot,
                    RankWriter& writer, const StateProgress& progress);

// Throws ConfigError unless the checkpoint's parameters are the whole model's, by name and shape.
// `spec`: of any part of the model.
void check_same_model(const ModelSpec& spec, const Checkpoint& checkpoint);

// Whether the checkpoint holds moments of any parameter; false: it holds weights alone.
[[nodiscard]] bool has_moments(const Checkpoint& checkpoint);

// The whole model's trained parameters, by whether the checkpoint holds their moments. A function
// of the manifest and of `spec.options`, hence equal on every rank, whatever the rank owns.
struct TrainedMoments {
  std::int64_t held = 0;
  std::int64_t missing = 0;  // of a checkpoint of weights alone, or frozen until the checkpoint
};
[[nodiscard]] TrainedMoments trained_moments(const ModelSpec& spec, const Checkpoint& checkpoint);

// Copies the checkpoint's states into the pieces (owned_pieces), from any saved layout, tier and
// type. fp32 moments held in 16 bits are rounded to nearest. Moments missing in the checkpoint
// become zero. Passes at most memory.staging.size() elements at a time, while the disk reads ahead;
// the engine may hold as much again. Throws CheckpointError, IoError; the engine's states are then
// a mixture. REQUIRES: engine.settle().
struct ReadMemory {
  std::span<float> staging;    // not empty
  std::span<std::byte> ahead;  // as Checkpoint::read_in_parts; page-aligned
};
void read_states(Engine& engine, const std::vector<StatePiece>& pieces, Checkpoint& checkpoint,
                 const ReadMemory& memory, const StateProgress& progress);

}  // namespace sluice
