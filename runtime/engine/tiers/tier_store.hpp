// What a rank keeps off its device: optimizer states, parameter and gradient shards, inputs of
// units, and the slots on the host through which they pass. Executes the step's operations between
// tiers.
//
//   ShardStore     the arrays, as the table of states says (zero/shard_store.hpp)
//   ChunkUpdates   operations of chunks            TierMoves   the other operations between tiers
//   TierCopies     how the host reaches the device
//
// The constructor takes all memory and all room on NVMe; a step allocates nothing. run() may be
// called from the threads of several lanes at a time. All other calls belong to the engine's thread
// while no program runs.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/index.hpp"
#include "runtime/engine/group_store.hpp"
#include "runtime/engine/tiers/chunk_updates.hpp"
#include "runtime/engine/tiers/tier_limits.hpp"
#include "runtime/engine/tiers/tier_moves.hpp"

namespace sluice {

class TierStore {
 public:
  // `programs`: all that will run, the training step first; their slots on the host are taken.
  // Where states on NVMe are an image, the NVMe store is still to be opened. `groups`: the arrays
  // on the device; they stay where they are. Throws BudgetError, IoError, ConfigError.
  TierStore(const StepPlan& plan, const StateTable& table, const OptimizerOptions& optimizer,
            std::span<const Program* const> programs, GroupStore& groups, int dp_rank,
            std::uint64_t seed, const TierOptions& options, std::shared_ptr<DeviceCopies> copies);
  ~TierStore();

  // Sets master weights and parameters of owned elements [begin, begin + values.size()), as far as
  // they are off the device. Blocks.
  void write_master(int g, std::int64_t begin, std::span<const float> values);
  // Copies the master weights that are off the device to their elements of `owned`; of frozen
  // parameters, which have none, the parameters. Blocks.
  void read_master(int g, std::span<float> owned);

  // Of the owned elements of a group, so many have their states off the device: the last ones.
  [[nodiscard]] std::int64_t state_elems(int g) const;
  // Elements [begin, begin + values.size()) of these, in fp32, through a few MiB of memory. Values
  // that are written to 16-bit moments are rounded to nearest: what was read from them is written
  // back unchanged. Parameters beside master weights are not written (write_master does).
  // REQUIRES: no deferred update. Block; throw IoError.
  void read_state(int g, StateKind kind, std::int64_t begin, std::span<float> values);
  void write_state(int g, StateKind kind, std::int64_t begin, std::span<const float> values);
  [[nodiscard]] Tier optimizer_tier() const { return shape_.placement.optimizer; }

  // See ChunkUpdates.
  void set_update(const UpdateArgs* args, bool kept = false) { updates_->set_update(args, kept); }
  void set_speculation(const UpdateArgs* args) { updates_->set_speculation(args); }
  [[nodiscard]] bool speculates() const { return updates_->speculates(); }
  // Bytes on NVMe that second places of chunks take.
  [[nodiscard]] std::int64_t second_place_bytes() const { return store_.second_place_bytes(); }

  // --- Where states on NVMe are an image (offload/nvme_image.hpp): keeps_image() ---
  [[nodiscard]] bool keeps_image() const { return store_.keeps_image(); }
  // Before anything else, and then one of open_anew() and adopt_image(). All throw IoError.
  [[nodiscard]] FoundImage find_image() { return store_.nvme()->find_image(); }
  void remove_found_image() { store_.nvme()->remove_found_image(); }
  void open_anew() { store_.nvme()->open(); }
  void adopt_image(const FoundImage& found, std::size_t version) {
    store_.adopt_image(found, version);
  }
  // Makes parameters on the host, [begin, begin + values.size()) of the owned ones, from master
  // weights.
  void fill_params(int g, std::int64_t begin, std::span<const float> values);
  // The states as they are now are those after `step`. REQUIRES: updates have been written.
  [[nodiscard]] Ticket commit(std::int64_t step, std::string state) {
    return store_.commit(step, std::move(state));
  }
  // States are about to be written from outside a step: no run goes on from here until the next
  // commit. Blocks.
  void withdraw_image();
  // The run has ended: no other run goes on from here.
  void end_image() { store_.nvme()->end_image(); }

  // An operation between tiers, or a chunk's update.
  [[nodiscard]] Ticket run(const Program& program, const Op& op, DevicePtr device_arena);

  [[nodiscard]] std::byte* host_arena() const { return arena_.data(); }
  // This rank's gradient shard. REQUIRES: gradients on the host.
  [[nodiscard]] float* host_gradients(int g) const;
  void add_gradient_streams(int g) { moves_->add_gradient_streams(g); }
  // The sum of squares of the gradient shard. REQUIRES: gradients on NVMe, kSumSquares has run.
  [[nodiscard]] double sum_squares(int g) const { return updates_->sum_squares(g); }

  [[nodiscard]] std::int64_t host_peak_bytes() const { return store_.pool().peak_bytes(); }
  [[nodiscard]] std::int64_t nvme_bytes() const;
  [[nodiscard]] NvmeStats nvme_stats() const;

 private:
  void find_groups(const StepPlan& plan, GroupStore& groups, int dp_rank);
  void take_slots(std::span<const Program* const> programs, const TierOptions& options);
  [[nodiscard]] const OffDeviceGroup& group(int g) const { return nth(groups_, g); }
  // Parameters that are not the master weights themselves.
  void write_params(int g, std::int64_t begin, std::span<const float> values);
  [[nodiscard]] RowId row_of(int g, StateKind kind, std::int64_t begin, std::size_t elems) const;

  const StepShape& shape_;
  ShardStore store_;
  TierCopies copies_;
  HostBlock arena_;
  HostBlock step_program_;
  std::vector<OffDeviceGroup> groups_;
  std::unique_ptr<ChunkUpdates> updates_;
  std::unique_ptr<TierMoves> moves_;
};

}  // namespace sluice
