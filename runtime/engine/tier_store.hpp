// What a rank keeps off its device: optimizer states, parameter and gradient shards, and the slots
// on the host through which they pass. Executes the step's operations between tiers.
//
// Every byte on the host is counted by a HostPool under memory.host, every byte on NVMe by the
// store under memory.nvme; both are taken in the constructor and nothing is allocated by a step.
// Host and device are one address space (CPU); CUDA is refused where the configuration is read.
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

#include "kernels/base/ticket.hpp"
#include "offload/host_pool.hpp"
#include "offload/nvme_store.hpp"
#include "runtime/checkpoint/range_plan.hpp"
#include "runtime/engine/adamw_step.hpp"
#include "runtime/engine/group_store.hpp"
#include "runtime/engine/tier_limits.hpp"
#include "runtime/program/program.hpp"
#include "runtime/program/update_flow.hpp"

namespace sluice {

class TierStore {
 public:
  // `programs`: all that will run, the training step first; their slots on the host are taken.
  // Throws BudgetError, IoError, ConfigError.
  TierStore(const StepPlan& plan, const OptimizerOptions& optimizer,
            std::span<const Program* const> programs, GroupStore& groups, int dp_rank,
            std::uint64_t seed, const TierOptions& options);
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
  // Bytes on NVMe that second places of speculated chunks take.
  [[nodiscard]] std::int64_t second_place_bytes() const;

  // An operation between tiers, or a chunk's update.
  [[nodiscard]] Ticket run(const Program& program, const Op& op, std::byte* device_arena);

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
  // One array of a group, off the device.
  struct Array {
    std::byte* host = nullptr;
    ExtentId extent;
    ExtentId second;  // of speculated chunks
    std::int64_t element_bytes = 4;
    [[nodiscard]] bool on_disk() const { return extent.index >= 0; }
  };
  struct Away {
    std::int64_t there = 0;  // elements updated on the device: the states' arrays begin after them
    std::int64_t first_element = 0;  // of all the model's: that of the first owned one
    Array master, moment1, moment2;
    Array params;  // the master's where they are one
    bool params_here = false;
    // Elements off the device that have second places, and by chunk, whether that one is current.
    std::int64_t second_begin = 0;
    std::int64_t second_elems = 0;
    std::vector<char> in_second;
    std::vector<Array> grads;  // by stream
    std::vector<double> block_sums;
  };

  void plan_states(const StepPlan& plan, const Program& train);
  void read_params(int g, std::span<float> owned);
  [[nodiscard]] const Array& array_of(int g, StateKind kind, std::int64_t begin,
                                      std::size_t elems) const;
  void plan_inputs();
  void take_host_memory(std::span<const Program* const> programs);
  void declare(Array& array, Tier tier, Tag tag, const std::string& name, std::int64_t elems,
               std::int64_t element_bytes, std::int64_t second_elems = 0);
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
                            void* into);
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
  [[nodiscard]] bool has_second_place(const Chunk& chunk) const;
  [[nodiscard]] Ticket read_states(const Chunk& chunk);
  [[nodiscard]] Ticket write_states(const Chunk& chunk, At at);
  [[nodiscard]] Ticket read_grads(const Chunk& chunk);
  void copy_grads(const Chunk& chunk);
  void update(const Chunk& chunk, const UpdateArgs& update, std::byte* weights);
  void copy_params(const Chunk& chunk);
  [[nodiscard]] Ticket write_params(const Chunk& chunk, At at);
  void sum_squares(const Chunk& chunk);
  void fetch_shard(const Op& op, const std::byte* staging, std::byte* gathered);
  [[nodiscard]] Ticket move_bucket(const Program& program, const Op& op, std::byte* host);
  void store_grads(const Program& program, const Op& op, const std::byte* reduced, std::byte* host);
  [[nodiscard]] ExtentId input_extent(const Op& op) const;

  const StepShape& shape_;
  const OptimizerOptions optimizer_;
  const std::uint64_t seed_;  // of the moments' rounding
  GroupStore& groups_;
  const int dp_rank_;
  const ChunkLayout layout_;
  const UpdateArgs* update_ = nullptr;
  const UpdateArgs* speculation_ = nullptr;
  bool keeps_ = false;                         // update_ was applied by speculation
  std::vector<Away> away_;                     // by group
  std::vector<std::vector<ExtentId>> inputs_;  // by unit, micro-batch
  HostPool pool_;
  std::vector<std::vector<std::pair<Array*, std::int64_t>>> wanted_;  // on the host, by tag: bytes
  std::vector<HostBlock> blocks_;
  HostBlock ring_;
  HostBlock arena_;
  std::unique_ptr<NvmeStore> nvme_;  // after the memory its requests use
};

}  // namespace sluice
