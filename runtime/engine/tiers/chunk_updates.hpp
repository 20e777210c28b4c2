// Executes the operations of chunks: optimizer states and gradients into the ring, their update,
// and the way back (runtime/program/write/update_flow.hpp has the order).
//
// A speculative update of states on the host that has not begun when the last backward ends would
// only make the step longer, so it is left to the deferred update.
//
// run() may be called from the threads of several lanes at a time: the program orders operations
// that share a chunk or a slot. All other calls belong to the engine's thread while no program
// runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "base/index.hpp"
#include "runtime/engine/tiers/chunk_memory.hpp"
#include "runtime/engine/update_step.hpp"
#include "runtime/program/program.hpp"
#include "runtime/program/step_shape.hpp"

namespace sluice {

class ChunkUpdates {
 public:
  // All references outlive this. `train`: the program whose speculated chunks are updated before
  // the norm is known.
  ChunkUpdates(ShardStore& store, DeviceCopies& device, const StepShape& shape,
               const OptimizerOptions& optimizer, std::span<const OffDeviceGroup> groups,
               const Program& train);

  // What deferred updates of the program that starts now apply; null: they do nothing. `kept`: the
  // speculative updates of the last step applied the same arguments, and stand.
  void set_update(const UpdateArgs* args, bool kept);
  // What speculative updates of the program that starts now apply; null: they do nothing.
  void set_speculation(const UpdateArgs* args);
  // Whether the program that starts now only makes the parameters again that speculative updates of
  // the last step, which was thrown away, have replaced.
  void set_remaking(bool remaking) { remaking_ = remaking; }
  // Whether speculative updates have replaced parameters, in the last step that speculated.
  [[nodiscard]] bool replaced_params() const;
  // The step's last backward has ended. While the program runs, from any thread.
  void end_backward() { backward_ended_ = true; }
  // The number of chunks updated before the norm was known, in the last step that speculated.
  [[nodiscard]] std::int64_t updated_early() const;
  // Whether the program updates some chunks before the norm is known.
  [[nodiscard]] bool speculates() const;

  [[nodiscard]] Ticket run(const Op& op, const Chunk& chunk);

  // Whether the program sums the squares of a group's gradients by chunks (kSumSquares); their sum.
  [[nodiscard]] bool sums_squares(int g) const { return nth(sums_squares_, g) != 0; }
  [[nodiscard]] double sum_squares(int g) const;

 private:
  // The chunks of a group that speculation updates.
  struct Early {
    std::int64_t begin = 0;        // first element of the first chunk
    std::int64_t chunk_elems = 1;  // of all chunks but the group's last
    std::vector<char> updated;     // by chunk: updated by the last step that speculated
    std::vector<char> kept;        // by chunk: the deferred update has nothing to compute

    [[nodiscard]] std::int64_t number_of(const Chunk& chunk) const {
      return (chunk.begin - begin) / chunk_elems;
    }
    // `of`: updated or kept.
    [[nodiscard]] bool has(const std::vector<char>& of, const Chunk& chunk) const {
      const std::int64_t number = number_of(chunk);
      return chunk.begin >= begin && number < std::ssize(of) && nth(of, number) != 0;
    }
  };
  [[nodiscard]] bool on_host() const { return shape_.placement.optimizer == Tier::kHost; }
  [[nodiscard]] bool was_updated_early(const Chunk& chunk) const {
    const Early& early = nth(early_, chunk.group);
    return early.has(early.updated, chunk);
  }
  [[nodiscard]] bool is_late(const Op& op, const Chunk& chunk) const;
  [[nodiscard]] Ticket read_states(const Chunk& chunk, At at);
  [[nodiscard]] Ticket write_states(const Chunk& chunk, At at);
  [[nodiscard]] Ticket read_grads(const Chunk& chunk);
  void add_streams(const Chunk& chunk);
  void update(const Chunk& chunk, const UpdateArgs& update, std::byte* weights, At to);
  void update_early(const Chunk& chunk);
  void copy_params(const Chunk& chunk);
  void sum_squares(const Chunk& chunk);
  [[nodiscard]] Ticket make_params(const Op& op, const Chunk& chunk);

  ShardStore& store_;
  DeviceCopies& device_;
  const StepShape& shape_;
  const OptimizerOptions optimizer_;
  const ChunkMemory memory_;
  const UpdateArgs* update_ = nullptr;
  const UpdateArgs* speculation_ = nullptr;
  bool remaking_ = false;
  std::atomic<bool> backward_ended_ = false;
  std::vector<Early> early_;                     // by group
  std::vector<char> sums_squares_;               // by group
  std::vector<std::vector<double>> block_sums_;  // by group
};

}  // namespace sluice
