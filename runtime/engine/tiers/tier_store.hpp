// A rank's off-device data: optimizer states, parameter and gradient shards, inputs of units, and
// their slots on the host. Executes the step's operations between tiers.
//
//   ShardStore     the arrays of the table of states (zero/shard_store.hpp)
//   ChunkUpdates   operations of chunks            TierMoves   the other operations between tiers
//   TierCopies     the host's access to the device
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
  // `programs`: all programs that will run, the training step first; allocates their host slots.
  // With an image the caller must then open the NVMe store. `groups`: the arrays on the device,
  // which must not move. Throws BudgetError, IoError, ConfigError.
  TierStore(const StepPlan& plan, const StateTable& table, const OptimizerOptions& optimizer,
            std::span<const Program* const> programs, GroupStore& groups, int dp_rank,
            const TierOptions& options, std::shared_ptr<DeviceCopies> copies);
  ~TierStore();

  // Sets off-device master weights and parameters of owned elements [begin, begin + values.size()).
  // Blocks.
  void write_master(int g, std::int64_t begin, std::span<const float> values);
  // Copies off-device master weights to their elements of `owned`. For a frozen group, which has no
  // master weights, copies the parameters. Blocks.
  void read_master(int g, std::span<float> owned);

  // Number of owned elements with off-device states: the last ones of the group.
  [[nodiscard]] std::int64_t state_elems(int g) const;
  // Elements [begin, begin + values.size()) of the off-device states, in fp32, with a few MiB of
  // memory. Writes round to nearest for 16-bit moments, so values read are written back exactly.
  // Master weights are written by write_master(). REQUIRES: no deferred update. Block; throw
  // IoError.
  void read_state(int g, StateKind kind, std::int64_t begin, std::span<float> values);
  void write_moment(int g, StateKind kind, std::int64_t begin, std::span<const float> values);

  // See ChunkUpdates.
  void set_update(const UpdateArgs* args, bool kept = false) { updates_->set_update(args, kept); }
  void set_speculation(const UpdateArgs* args) { updates_->set_speculation(args); }
  void set_remaking(bool remaking) { updates_->set_remaking(remaking); }
  [[nodiscard]] bool replaced_params() const { return updates_->replaced_params(); }
  void end_backward() { updates_->end_backward(); }
  [[nodiscard]] std::int64_t updated_early() const { return updates_->updated_early(); }
  [[nodiscard]] bool speculates() const { return updates_->speculates(); }
  // Bytes of second places of chunks on NVMe.
  [[nodiscard]] std::int64_t second_place_bytes() const { return store_.second_place_bytes(); }

  // --- Image (offload/nvme_image.hpp). REQUIRES: keeps_image() ---
  [[nodiscard]] bool keeps_image() const { return store_.keeps_image(); }
  // Called first; then the caller calls open_anew() or adopt_image(). All throw IoError.
  [[nodiscard]] FoundImage find_image() { return store_.nvme()->find_image(); }
  void remove_found_image() { store_.nvme()->remove_found_image(); }
  void open_anew() { store_.nvme()->open(); }
  void adopt_image(const FoundImage& found, std::size_t version) {
    store_.adopt_image(found, version);
  }
  // Sets owned host parameters [begin, begin + values.size()) from master weights `values`.
  void fill_params(int g, std::int64_t begin, std::span<const float> values);
  // Commits the current states as the states after `step`. REQUIRES: updates have been written.
  [[nodiscard]] Ticket commit(std::int64_t step, std::string state) {
    return store_.commit(step, std::move(state));
  }
  // Called before states are written outside a step. Until the next commit no run can resume from
  // the image. Blocks.
  void withdraw_image();
  // Called at the end of the run: no other run can resume from the image.
  void end_image() { store_.nvme()->end_image(); }

  // An operation between tiers, or a chunk's update.
  [[nodiscard]] Ticket run(const Program& program, const Op& op, DevicePtr device_arena);

  [[nodiscard]] std::byte* host_arena() const { return arena_.data(); }
  // This rank's gradient shard, in gradient_dtype(). REQUIRES: gradients on the host.
  [[nodiscard]] std::byte* host_gradients(int g) const;
  void add_gradient_streams(int g) { moves_->add_gradient_streams(g); }
  // Whether kSumSquares sums the squares of the gradient shard; their sum. REQUIRES: it has run.
  [[nodiscard]] bool sums_squares(int g) const { return updates_->sums_squares(g); }
  [[nodiscard]] double sum_squares(int g) const { return updates_->sum_squares(g); }

  [[nodiscard]] std::int64_t host_peak_bytes() const { return store_.pool().peak_bytes(); }
  // Of the host's bytes, those in use that are registered for a GPU's copies.
  [[nodiscard]] std::int64_t pinned_bytes() const { return store_.pool().other_source_bytes(); }
  [[nodiscard]] std::int64_t nvme_bytes() const;
  [[nodiscard]] NvmeStats nvme_stats() const;

 private:
  void find_groups(GroupStore& groups);
  void take_slots(std::span<const Program* const> programs, const TierOptions& options);
  [[nodiscard]] const OffDeviceGroup& group(int g) const { return nth(groups_, g); }
  // Parameters that are not the master weights themselves.
  void write_params(int g, std::int64_t begin, std::span<const float> values);
  void get_master(int g, std::int64_t begin, std::span<float> values);
  void check_range(int g, std::int64_t begin, std::int64_t elems) const;

  const StepShape& shape_;
  HostBlock arena_;  // declared before store_, whose requests in flight use the arena
  ShardStore store_;
  TierCopies copies_;
  HostBlock step_program_;
  std::vector<OffDeviceGroup> groups_;
  std::unique_ptr<ChunkUpdates> updates_;
  std::unique_ptr<TierMoves> moves_;
};

}  // namespace sluice
