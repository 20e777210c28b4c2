// What operations do to memory, for tier_simulation.hpp: version numbers in place of tensors, one a
// cell. An operation takes what it reads when it begins, leaves torn cells where it writes, and
// looks again when it ends.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/program/program.hpp"
#include "runtime/program/step_shape.hpp"
#include "tests/runtime/program/tier_simulation.hpp"

namespace sluice {

using Cell = std::uint64_t;
using Cells = std::vector<Cell>;

struct Region {
  int space = -1;
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t cells_a_value = 1;
};

[[nodiscard]] inline std::size_t values_in(const Region& region) {
  return (region.end - region.begin) / region.cells_a_value;
}

// Contents that are one number: of a step (version), and of what in it.
enum class Thing : std::uint64_t {
  kWhole = 16,
  kBatch,
  kInput,
  kKept,
  kGradient,
  kClip,
  kSum,
  kCommitted
};

[[nodiscard]] constexpr Cell thing(Thing what, std::int64_t a, std::int64_t b, std::int64_t step) {
  return (static_cast<Cell>(what) << 56) | (static_cast<Cell>(a) << 40) |
         (static_cast<Cell>(b) << 16) | static_cast<Cell>(step);
}

// The version that a state has been updated to.
[[nodiscard]] constexpr Cell version_in(Cell state) { return state & 0xffff; }
[[nodiscard]] Cells sum_of(const std::vector<Cells>& streams);

// An operation on its way. `work` makes, from what was read (a list for each region, one value for
// each kAlignElems elements), what is to be written.
struct Task {
  std::vector<Region> reads;
  std::vector<Region> writes;
  std::function<std::vector<Cells>(const std::vector<Cells>&)> work;
  std::vector<Cells> seen;
  std::vector<Cells> results;
};

// How a training step ends, and whether it speculates on that.
struct Outcome {
  bool speculates = false;
  bool clipped = false;
  bool thrown_away = false;  // not finite
  // Bit c % 64: chunk c's speculative update begins before the last backward ends.
  std::uint64_t in_time = ~std::uint64_t{0};

  [[nodiscard]] bool is_late(int chunk) const { return (in_time >> (chunk % 64) & 1U) == 0; }
};

class TierPlay {
 public:
  TierPlay(const StepShape& shape, int dp_rank);

  void load(const Playing& playing, const Outcome& outcome);
  // On the executing thread, as the operation is issued.
  void enter(OpId id);
  // On its lane.
  void begin(OpId id);
  void end(OpId id);
  // On the executing thread, after an operation of the compute lane.
  void leave(OpId id);

  [[nodiscard]] const std::string& fault() const { return fault_; }
  void fail(OpId id, const std::string& what);

 private:
  using UnitKey = std::pair<int, int>;  // unit, micro-batch

  // --- memory ---
  void fill_ring();
  int add_space(std::size_t cells, Cell value);
  void fill_buffer(BufferId b, Cell value);
  [[nodiscard]] Region whole(int space) const;
  [[nodiscard]] Region part(int space, std::int64_t begin_elem, std::int64_t elems) const;
  [[nodiscard]] Region buffer(BufferId b) const;
  [[nodiscard]] Region buffer_part(BufferId b, std::int64_t begin_elem, std::int64_t elems,
                                   std::int64_t element_bytes) const;
  [[nodiscard]] Cells look(const Region& region, OpId id);

  // --- expectations ---
  void expect(bool condition, const char* what);
  void expect_all(const Cells& cells, Cell value, const char* what);
  [[nodiscard]] Cell total(int g, std::int64_t step) const;
  [[nodiscard]] Cell gradient_of(int g, int u, int m, std::int64_t step) const;
  [[nodiscard]] Cells params_of(int g, std::int64_t begin_elem, std::size_t values,
                                std::int64_t version) const;

  // --- what operations do ---
  [[nodiscard]] Task task_of(const Op& op);
  [[nodiscard]] Task gather(const Op& op);
  [[nodiscard]] Task run_unit(const Op& op);
  void read_params(const Op& op, Task& task, std::vector<int>& groups);
  [[nodiscard]] Cells read_tensors(const Op& op, Task& task) const;
  [[nodiscard]] Cells write_tensors(const Op& op, Task& task);
  void check_params(const std::vector<int>& groups, const std::vector<Cells>& seen);
  void write_grads(const Op& op, Task& task);
  [[nodiscard]] Task reduce(const Op& op);
  [[nodiscard]] Task store(const Op& op);
  [[nodiscard]] Task add_streams(const Op& op);
  [[nodiscard]] Task gather_grads(const Op& op);
  [[nodiscard]] Task norm();
  [[nodiscard]] Task commit(const Op& op);
  [[nodiscard]] bool needs_commit(const Op& op) const;
  void find_committed(Task& task, const Op& op);
  [[nodiscard]] Task update_on_device(const Op& op);
  [[nodiscard]] Task task_of_chunk(const Op& op);
  [[nodiscard]] Task update_chunk(const Op& op);
  [[nodiscard]] Task make_params(const Op& op);
  [[nodiscard]] Cells updated(const Chunk& chunk, Cells states, std::int64_t step);
  [[nodiscard]] Task move_chunk(const Op& op);
  [[nodiscard]] Task read_streams(const Chunk& chunk);
  [[nodiscard]] Task sum_squares(const Op& op);
  [[nodiscard]] Task params_of_chunk(const Op& op);
  [[nodiscard]] Task move_input(const Op& op);
  [[nodiscard]] Task cross(const Op& op);
  [[nodiscard]] Task add_replicas(const Op& op);
  [[nodiscard]] Task copy(Region from, Region to);
  [[nodiscard]] std::vector<Region> shard_pieces(const Op& op) const;
  [[nodiscard]] Region staged(BufferId b, const Op& op) const;
  [[nodiscard]] Region full_grads(int g, std::int64_t begin_elem, std::int64_t elems) const;
  [[nodiscard]] Region summed_grads(int g, std::int64_t begin_elem, std::int64_t elems) const;
  [[nodiscard]] Region states_at(int chunk, bool second);
  [[nodiscard]] Region params_at(int chunk, bool second);
  [[nodiscard]] Task read_shard(const Op& op);
  [[nodiscard]] Region ring(const std::vector<int>& spaces, const Chunk& chunk);

  [[nodiscard]] const GroupShape& group(int g) const {
    return shape_.groups[static_cast<std::size_t>(g)];
  }
  [[nodiscard]] bool nvme(Tier tier) const { return tier == Tier::kNvme; }

  const StepShape& shape_;
  const int dp_rank_;
  std::string fault_;
  std::vector<Cells> spaces_;
  // Persistent; by group unless said otherwise.
  std::vector<int> states_;
  std::vector<int> params_;         // what this rank owns
  std::vector<int> second_states_;  // second places off the device
  std::vector<int> second_params_;
  std::vector<bool> in_second_;           // by chunk: its second place is its place now
  std::vector<bool> speculated_;          // by chunk, by the last training program
  std::vector<bool> kept_chunks_;         // by chunk: this program keeps its speculative update
  std::vector<int> others_;               // the rest of what is resident
  std::vector<int> full_;                 // full gradients, stages 0 and 1
  std::vector<std::vector<int>> shards_;  // gradient shards, by stream
  std::vector<std::vector<int>> inputs_;  // on NVMe, by unit
  std::vector<int> ring_states_;          // by slot
  std::vector<int> ring_weights_;
  std::vector<std::vector<int>> ring_grads_;  // by stream, slot
  int clip_ = -1;
  int committed_ = -1;  // to which step an image has got; and which step all ranks told of
  std::size_t persistent_spaces_ = 0;
  // Of one program.
  const Program* program_ = nullptr;
  PlayKind kind_ = PlayKind::kTrain;
  std::int64_t version_ = 0;    // of what its units read
  bool pending_ = true;         // the last step's update
  bool updates_ = false;        // the program brings it to an end
  bool guessed_right_ = false;  // the last step was speculated on, and neither clipped nor lost
  Outcome outcome_;
  int arena_ = -1;
  int host_arena_ = -1;
  int sums_ = -1;             // by chunk
  std::vector<int> dynamic_;  // by buffer
  std::vector<Task> tasks_;
  OpId now_ = -1;
  std::map<int, BufferId> batch_;
  std::map<UnitKey, BufferId> input_;
  std::map<UnitKey, BufferId> kept_;
  std::map<UnitKey, BufferId> gradient_;   // of a unit's input
  std::map<UnitKey, BufferId> received_;   // of a unit's output, from another pipeline stage
  std::map<int, BufferId> gathered_;       // by group
  std::map<int, BufferId> gradient_slot_;  // newest, by group
};

}  // namespace sluice
