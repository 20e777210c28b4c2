// What a rank keeps off its device: optimizer states, parameter and gradient shards, and the slots
// on the host through which they pass. Executes the step's operations between tiers.
//
// Every byte on the host is counted by a HostPool under memory.host, every byte on NVMe by the
// store under memory.nvme; both are taken in the constructor and nothing is allocated by a step.
// What is on the device is reached by copies alone (tier_copies.hpp): it has a DevicePtr.
//
// run() may be called from the threads of several lanes at a time (each operation touches its own
// chunk, bucket or group; the program orders those that share one); all else from the engine's
// thread while no program runs.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ticket.hpp"
#include "offload/host_pool.hpp"
#include "offload/nvme_store.hpp"
#include "runtime/checkpoint/format/range_plan.hpp"
#include "runtime/engine/adamw_step.hpp"
#include "runtime/engine/group_store.hpp"
#include "runtime/engine/tier_arrays.hpp"
#include "runtime/engine/tier_copies.hpp"
#include "runtime/engine/tier_limits.hpp"
#include "runtime/program/program.hpp"
#include "runtime/program/write/update_flow.hpp"

namespace sluice {

class TierStore {
 public:
  // `programs`: all that will run, the training step first; their slots on the host are taken.
  // Where states on NVMe are an image, the store on NVMe is still to be opened.
  // `groups`: where on the device what is copied from and to it is; it stays there. Throws
  // BudgetError, IoError, ConfigError.
  TierStore(const StepPlan& plan, const OptimizerOptions& optimizer,
            std::span<const Program* const> programs, GroupStore& groups, int dp_rank,
            std::uint64_t seed, const TierOptions& options, std::shared_ptr<DeviceCopies> copies);
  ~TierStore();

  // Sets master weights and parameters of owned elements [begin, begin + values.size()) as far as
  // they live here. Blocks.
  void write_master(int g, std::int64_t begin, std::span<const float> values);
  // The master weights that live here, to their places in `owned`; of frozen parameters, which have
  // none, themselves. Blocks.
  void read_master(int g, std::span<float> owned);

  // Of the owned elements of a group, so many have their states here: the last ones.
  [[nodiscard]] std::int64_t state_elems(int g) const;
  // Elements [begin, begin + values.size()) of these, in fp32, on whatever tier they are; no more
  // memory than a few MiB. What is written to 16-bit moments is rounded to nearest: what was read
  // from them is written back as it was. Parameters beside master weights are not written
  // (write_master does). REQUIRES: no update is left to a later step. Block; throw IoError.
  void read_state(int g, StateKind kind, std::int64_t begin, std::span<float> values);
  void write_state(int g, StateKind kind, std::int64_t begin, std::span<const float> values);
  [[nodiscard]] Tier optimizer_tier() const { return shape_.placement.optimizer; }

  // What the chunks' updates of the program that starts now apply; null: they do nothing. `kept`:
  // speculation applied the same to the last step's gradients, and its chunks are updated.
  void set_update(const UpdateArgs* args, bool kept = false);
  // What speculative updates of the program that starts now apply; null: they do nothing. Nobody
  // sees what they make unless it is kept.
  void set_speculation(const UpdateArgs* args) { speculation_ = args; }
  // Bytes on NVMe that second places of chunks take.
  [[nodiscard]] std::int64_t second_place_bytes() const;
  // Whether some chunks may be updated before the norm is known.
  [[nodiscard]] bool speculates() const;

  // --- Where states on NVMe are an image (offload/nvme_image.hpp): keeps_image() ---
  [[nodiscard]] bool keeps_image() const { return image_; }
  // Before anything else, and then one of open_anew() and adopt_image(). All throw IoError.
  [[nodiscard]] FoundImage find_image();
  void remove_found_image();
  void open_anew() { nvme_->open(); }
  void adopt_image(const FoundImage& found, std::size_t version);
  // Parameters on the host, [begin, begin + values.size()) of the owned ones, from master weights.
  void fill_params(int g, std::int64_t begin, std::span<const float> values);
  // All states as they are now are those after `step`. REQUIRES: updates have been written.
  [[nodiscard]] Ticket commit(std::int64_t step, std::string state);
  // States are written to from outside: nobody is to go on from here until the next commit. Blocks.
  void withdraw_image();
  // The run is over: nobody is to go on from here.
  void end_image();

  // An operation between tiers, or a chunk's update.
  [[nodiscard]] Ticket run(const Program& program, const Op& op, DevicePtr device_arena);

  [[nodiscard]] std::byte* host_arena() const { return arena_.data(); }
  // This rank's gradient shard on the host; kHost only.
  [[nodiscard]] float* host_gradients(int g) const;
  void add_gradient_streams(int g);  // kHost only
  // The sum of squares of the gradient shard as kSumSquares found it; kNvme only.
  [[nodiscard]] double sum_squares(int g) const;

  [[nodiscard]] std::int64_t host_peak_bytes() const;
  [[nodiscard]] std::int64_t nvme_bytes() const;
  [[nodiscard]] NvmeStats nvme_stats() const;

 private:
  using Array = TierArray;
  using Away = AwayGroup;

  void plan_states(const StepPlan& plan, const Program& train);
  void plan_group(const GroupPlan& plan, int g, std::int64_t first_element);
  void find_on_device(GroupStore& groups);
  void note_early(const Program& train);
  void declare_image();
  [[nodiscard]] NvmeOptions store_options(const TierOptions& options) const;
  // Elements [begin, begin + values.size()) of an array of group g, in fp32. Block.
  void get(int g, const Array& array, std::int64_t begin, std::span<float> values);
  void put(int g, const Array& array, std::int64_t begin, std::span<const float> values);
  void write_params(int g, std::int64_t begin, std::span<const float> values);
  [[nodiscard]] const Array& array_of(int g, StateKind kind, std::int64_t begin,
                                      std::size_t elems) const;
  void plan_inputs();
  void take_host_memory(std::span<const Program* const> programs);
  void declare(Array& array, Tier tier, Tag tag, const std::string& name, std::int64_t elems,
               DType dtype, std::int64_t second_elems = 0);
  // A run of an array of group g, from where each chunk's is; kOther: where it is not.
  enum class At { kCurrent, kOther };
  struct Run {
    ExtentId extent;
    std::int64_t offset = 0;  // bytes
    std::int64_t bytes = 0;
  };
  [[nodiscard]] std::vector<Run> runs_of(int g, const Array& array, std::int64_t begin,
                                         std::int64_t elems, At at) const;
  [[nodiscard]] Ticket read(int g, const Array& array, std::int64_t begin, std::int64_t elems,
                            void* into, At at = At::kCurrent);
  [[nodiscard]] Ticket write(int g, const Array& array, std::int64_t begin, std::int64_t elems,
                             const void* from, At at = At::kCurrent);

  [[nodiscard]] Away& away(int g) { return away_[static_cast<std::size_t>(g)]; }
  [[nodiscard]] const Away& away(int g) const { return away_[static_cast<std::size_t>(g)]; }
  [[nodiscard]] std::byte* slot(const Chunk& chunk, std::int64_t part) const;
  [[nodiscard]] void* state(const Chunk& chunk, const Array& array, std::int64_t part) const;
  [[nodiscard]] float* gradients(const Chunk& chunk) const;
  [[nodiscard]] std::byte* new_weights(const Chunk& chunk) const;
  void add_streams(const Chunk& chunk);

  [[nodiscard]] Ticket run_chunk(const Op& op, const Chunk& chunk);
  [[nodiscard]] Ticket end_kept_update(const Op& op, const Chunk& chunk);
  [[nodiscard]] bool is_early(const Chunk& chunk) const;
  [[nodiscard]] Ticket read_states(const Chunk& chunk, At at);
  [[nodiscard]] Ticket write_states(const Chunk& chunk, At at);
  [[nodiscard]] Ticket read_grads(const Chunk& chunk);
  void copy_grads(const Chunk& chunk);
  void update(const Chunk& chunk, const UpdateArgs& update, std::byte* weights);
  void copy_params(const Chunk& chunk);
  [[nodiscard]] Ticket write_params(const Chunk& chunk, At at);
  void sum_squares(const Chunk& chunk);
  void fetch_shard(const Op& op, const std::byte* staging, DevicePtr gathered);
  [[nodiscard]] Ticket move_bucket(const Program& program, const Op& op, std::byte* host);
  void store_grads(const Program& program, const Op& op, DevicePtr reduced, std::byte* host);
  [[nodiscard]] ExtentId input_extent(const Op& op) const;

  const StepShape& shape_;
  const OptimizerOptions optimizer_;
  const std::uint64_t seed_;  // of the moments' rounding
  const int dp_rank_;
  const ChunkLayout layout_;
  const bool image_;
  int image_place_ = 0;  // where every chunk is
  const UpdateArgs* update_ = nullptr;
  const UpdateArgs* speculation_ = nullptr;
  bool keeps_ = false;                         // update_ was applied by speculation
  std::vector<Away> away_;                     // by group
  std::vector<std::vector<ExtentId>> inputs_;  // by unit, micro-batch
  HostPool pool_;
  const std::shared_ptr<PageSource> dma_pages_;
  TierCopies copies_;
  std::vector<std::vector<std::pair<Array*, std::int64_t>>> wanted_;  // on the host, by tag: bytes
  std::vector<HostBlock> blocks_;
  HostBlock ring_;
  HostBlock arena_;
  std::unique_ptr<NvmeStore> nvme_;  // after the memory its requests use
};

}  // namespace sluice
