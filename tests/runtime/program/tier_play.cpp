#include "tests/runtime/program/tier_play.hpp"

#include <algorithm>
#include <stdexcept>

#include "runtime/program/write/use_order.hpp"
#include "zero/partition_plan.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kCellBytes = 64;  // of an arena: kAlignElems elements of 16 bits

// Numbers that no gradient is: what a cell holds, and whose.
enum class Mark : std::uint64_t { kFresh = 1, kDead, kTorn, kState, kParam };

constexpr Cell mark(Mark what, std::int64_t a = 0, std::int64_t b = 0, std::int64_t version = 0) {
  return (static_cast<Cell>(what) << 56) | (static_cast<Cell>(a) << 40) |
         (static_cast<Cell>(b) << 16) | static_cast<Cell>(version);
}
Mark mark_of(Cell cell) { return static_cast<Mark>(cell >> 56); }

std::size_t units_of(std::int64_t elems) { return static_cast<std::size_t>(elems / kAlignElems); }

bool writes(const UnitShape& unit, int g) {
  return std::find(unit.groups.begin(), unit.groups.end(), g) != unit.groups.end();
}

}  // namespace

Cells sum_of(const std::vector<Cells>& streams) {
  Cells sum = streams.at(0);
  for (std::size_t s = 1; s < streams.size(); ++s) {
    for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += streams[s][e];
  }
  return sum;
}

TierPlay::TierPlay(const StepShape& shape, int dp_rank) : shape_(shape), dp_rank_(dp_rank) {
  std::size_t largest = 1;
  int streams = 1;
  const std::int64_t before = 0;  // version of what a step before the first would have left
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    const std::int64_t owned = owned_elems(shape, g);
    const std::int64_t there = device_elems(shape, g);
    states_.push_back(add_space(units_of(owned), 0));
    params_.push_back(add_space(units_of(owned), 0));
    for (std::size_t e = 0; e < units_of(owned); ++e) {
      const std::int64_t version = before + (e < units_of(there) ? 1 : 0);
      const auto at = static_cast<std::int64_t>(e);
      spaces_[static_cast<std::size_t>(states_.back())][e] = mark(Mark::kState, g, at, version);
      spaces_[static_cast<std::size_t>(params_.back())][e] = mark(Mark::kParam, g, at, version);
    }
    second_states_.push_back(add_space(units_of(owned), mark(Mark::kFresh)));
    second_params_.push_back(add_space(units_of(owned), mark(Mark::kFresh)));
    others_.push_back(add_space(1, mark(Mark::kFresh)));
    full_.push_back(
        add_space(keeps_full_gradients(shape) ? units_of(group(g).elems) : 0, total(g, before)));
    std::vector<int> shards;
    for (int s = 0; has_gradient_shard(shape) && s < gradient_streams(shape, g); ++s) {
      shards.push_back(add_space(units_of(group(g).shard_elems), s == 0 ? total(g, before) : 0));
    }
    shards_.push_back(shards);
    streams = std::max(streams, gradient_streams(shape, g));
    largest = std::max(largest, units_of(owned));
  }
  const int slots = std::max(1, shape.placement.chunk_slots);
  ring_grads_.resize(static_cast<std::size_t>(streams));
  for (int s = 0; s < slots; ++s) {
    ring_states_.push_back(add_space(largest, mark(Mark::kFresh)));
    ring_weights_.push_back(add_space(largest, mark(Mark::kFresh)));
    for (auto& stream : ring_grads_) stream.push_back(add_space(largest, mark(Mark::kFresh)));
  }
  for (std::size_t u = 0; u < shape.units.size(); ++u) {
    inputs_.emplace_back();
    for (int m = 0; m < input_extents(shape); ++m) {
      inputs_.back().push_back(add_space(1, mark(Mark::kFresh)));
    }
  }
  clip_ = add_space(1, thing(Thing::kClip, 0, 0, before));
  committed_ = add_space(2, mark(Mark::kFresh));
  persistent_spaces_ = spaces_.size();
}

void TierPlay::load(const Playing& playing, const Outcome& outcome) {
  program_ = playing.program;
  kind_ = playing.kind;
  outcome_ = outcome;
  if (nvme(shape_.placement.optimizer)) outcome_.in_time = Outcome{}.in_time;
  in_second_.resize(program_->chunks.size(), false);
  if (version_ == 0) fill_ring();
  updates_ = pending_ && kind_ != PlayKind::kEvaluate;
  const bool keeps = updates_ && guessed_right_;
  if (updates_) {
    ++version_;
    pending_ = false;
    guessed_right_ = false;
  }
  kept_chunks_.assign(in_second_.size(), false);
  for (std::size_t c = 0; updates_ && c < in_second_.size(); ++c) {
    kept_chunks_[c] = keeps && speculated_[c];
    if (program_->image || kept_chunks_[c]) in_second_[c] = !in_second_[c];
  }
  if (kind_ == PlayKind::kTrain) {
    pending_ = !outcome_.thrown_away;
    guessed_right_ = pending_ && outcome_.speculates && !outcome_.clipped;
    speculated_.clear();
    for (const Chunk& chunk : program_->chunks) {
      const auto c = static_cast<int>(speculated_.size());
      speculated_.push_back(chunk.speculated && !outcome_.is_late(c));
    }
  }
  spaces_.resize(persistent_spaces_);
  const auto arena_cells = [](std::int64_t bytes) {
    return static_cast<std::size_t>((bytes + kCellBytes - 1) / kCellBytes);
  };
  arena_ = add_space(arena_cells(program_->arena_bytes), mark(Mark::kFresh));
  host_arena_ = add_space(arena_cells(program_->host_arena_bytes), mark(Mark::kFresh));
  sums_ = add_space(program_->chunks.size(), mark(Mark::kFresh));
  dynamic_.assign(program_->buffers.size(), -1);
  for (std::size_t b = 0; b < dynamic_.size(); ++b) {
    if (!program_->buffers[b].in_arena) dynamic_[b] = add_space(1, mark(Mark::kFresh));
  }
  tasks_.assign(program_->ops.size(), {});
  for (auto* places : {&batch_, &gathered_, &gradient_slot_}) places->clear();
  gradient_.clear();
  received_.clear();
  input_.clear();
  kept_.clear();
}

// As the step before the first would have left it.
void TierPlay::fill_ring() {
  for (int c = 0; c < program_->chunks_ahead; ++c) {
    const Chunk& chunk = program_->chunks[static_cast<std::size_t>(c)];
    if (!nvme(optimizer_tier(shape_, chunk.group))) continue;
    const Region from = states_at(c, false);
    const Cells& states = spaces_[static_cast<std::size_t>(from.space)];
    const int slot = ring_states_.at(static_cast<std::size_t>(chunk.slot));
    std::copy(states.begin() + static_cast<std::ptrdiff_t>(from.begin),
              states.begin() + static_cast<std::ptrdiff_t>(from.end),
              spaces_[static_cast<std::size_t>(slot)].begin());
  }
}

void TierPlay::fail(OpId id, const std::string& what) {
  if (!fault_.empty()) return;
  fault_ = "operation " + std::to_string(id) + " (" +
           std::string(name_of(program_->ops[static_cast<std::size_t>(id)].kind)) + "): " + what;
}

// --- memory ---

int TierPlay::add_space(std::size_t cells, Cell value) {
  spaces_.emplace_back(cells, value);
  return static_cast<int>(spaces_.size()) - 1;
}

Region TierPlay::whole(int space) const {
  return {space, 0, spaces_[static_cast<std::size_t>(space)].size()};
}

Region TierPlay::part(int space, std::int64_t begin_elem, std::int64_t elems) const {
  return {space, units_of(begin_elem), units_of(begin_elem + elems)};
}

Region TierPlay::buffer(BufferId b) const {
  const Buffer& buffer = program_->buffers[static_cast<std::size_t>(b)];
  if (!buffer.in_arena) return whole(dynamic_[static_cast<std::size_t>(b)]);
  const auto begin = static_cast<std::size_t>(buffer.arena_offset / kCellBytes);
  const auto cells = static_cast<std::size_t>((buffer.bytes + kCellBytes - 1) / kCellBytes);
  return {buffer.tier == Tier::kDevice ? arena_ : host_arena_, begin, begin + cells, cells};
}

Region TierPlay::buffer_part(BufferId b, std::int64_t begin_elem, std::int64_t elems,
                             std::int64_t element_bytes) const {
  Region region = buffer(b);
  region.cells_a_value = static_cast<std::size_t>(kAlignElems * element_bytes / kCellBytes);
  region.begin += units_of(begin_elem) * region.cells_a_value;
  region.end = region.begin + units_of(elems) * region.cells_a_value;
  return region;
}

void TierPlay::fill_buffer(BufferId b, Cell value) {
  const Region region = buffer(b);
  Cells& cells = spaces_[static_cast<std::size_t>(region.space)];
  if (region.end > cells.size()) return fail(now_, "has a buffer outside the arena");
  std::fill(cells.begin() + static_cast<std::ptrdiff_t>(region.begin),
            cells.begin() + static_cast<std::ptrdiff_t>(region.end), value);
}

Cells TierPlay::look(const Region& region, OpId id) {
  const Cells& cells = spaces_[static_cast<std::size_t>(region.space)];
  Cells values;
  if (region.end > cells.size()) {
    fail(id, "reads outside of memory");
    return values;
  }
  values.reserve(values_in(region));
  for (std::size_t c = region.begin; c < region.end; c += region.cells_a_value) {
    values.push_back(cells[c]);
    for (std::size_t k = 1; k < region.cells_a_value; ++k) {
      if (cells[c + k] != cells[c]) fail(id, "reads a value of which a part was overwritten");
    }
    switch (mark_of(cells[c])) {
      case Mark::kFresh:
        fail(id, "reads what nobody has written");
        break;
      case Mark::kDead:
        fail(id, "reads what is dead");
        break;
      case Mark::kTorn:
        fail(id, "reads what operation " + std::to_string(cells[c] & 0xffffff) + " is writing");
        break;
      default:
        break;
    }
  }
  return values;
}

void TierPlay::enter(OpId id) {
  now_ = id;
  const Op& op = program_->ops[static_cast<std::size_t>(id)];
  for (const BufferId b : op.dead_before) fill_buffer(b, mark(Mark::kDead));
  for (const BufferId b : op.live) {
    fill_buffer(b, mark(Mark::kFresh));
    const Buffer& buffer = program_->buffers[static_cast<std::size_t>(b)];
    if (buffer.tag == Tag::kGatheredParameters) gathered_[buffer.group] = b;
    if (buffer.tag == Tag::kGradientBuckets) gradient_slot_[buffer.group] = b;
  }
  try {
    Task& task = tasks_[static_cast<std::size_t>(id)] = task_of(op);
    if (needs_commit(op)) find_committed(task, op);
  } catch (const std::out_of_range&) {
    fail(id, "looks for what has never been there");
  }
}

void TierPlay::begin(OpId id) {
  Task& task = tasks_[static_cast<std::size_t>(id)];
  now_ = id;
  for (const Region& region : task.reads) task.seen.push_back(look(region, id));
  if (!fault_.empty()) return;
  if (task.work) task.results = task.work(task.seen);
  expect(task.results.size() == task.writes.size(), "(simulation) writes an unknown number");
  for (const Region& region : task.writes) {
    Cells& cells = spaces_[static_cast<std::size_t>(region.space)];
    if (region.end > cells.size()) return fail(id, "writes outside of memory");
    for (std::size_t c = region.begin; c < region.end; ++c) cells[c] = mark(Mark::kTorn) + Cell(id);
  }
}

void TierPlay::end(OpId id) {
  Task& task = tasks_[static_cast<std::size_t>(id)];
  if (!fault_.empty()) return;
  const Cell own = mark(Mark::kTorn) + Cell(id);
  for (std::size_t r = 0; r < task.reads.size(); ++r) {
    const Region& region = task.reads[r];
    const Cells& cells = spaces_[static_cast<std::size_t>(region.space)];
    for (std::size_t c = region.begin, v = 0; c < region.end; ++v) {
      const Cell seen = task.seen[r][v];
      for (std::size_t k = 0; k < region.cells_a_value; ++k, ++c) {
        if (cells[c] != seen && cells[c] != own) return fail(id, "is overwritten while it reads");
      }
    }
  }
  for (std::size_t w = 0; w < task.writes.size(); ++w) {
    const Region& region = task.writes[w];
    Cells& cells = spaces_[static_cast<std::size_t>(region.space)];
    for (std::size_t c = region.begin, v = 0; c < region.end; ++v) {
      const Cell result = task.results[w][v];
      for (std::size_t k = 0; k < region.cells_a_value; ++k, ++c) {
        if (cells[c] != own) return fail(id, "writes where somebody else does");
        cells[c] = result;
      }
    }
  }
  task = {};
}

void TierPlay::leave(OpId id) {
  now_ = id;
  for (const BufferId b : program_->ops[static_cast<std::size_t>(id)].dead_after) {
    fill_buffer(b, mark(Mark::kDead));
  }
}

// --- expectations ---

void TierPlay::expect(bool condition, const char* what) {
  if (!condition) fail(now_, what);
}

void TierPlay::expect_all(const Cells& cells, Cell value, const char* what) {
  expect(std::all_of(cells.begin(), cells.end(), [value](Cell c) { return c == value; }), what);
}

// A power of four for each unit and micro-batch, so that a sum tells what is in it and how often;
// times a number of the step's own.
Cell TierPlay::gradient_of(int g, int u, int m, std::int64_t step) const {
  int which = 0;
  for (int before = 0; before < u; ++before) {
    which += writes(shape_.units[static_cast<std::size_t>(before)], g) ? 1 : 0;
  }
  return (Cell{1} << (2 * (2 * m + which))) * static_cast<Cell>(2 * step + 1);
}

Cell TierPlay::total(int g, std::int64_t step) const {
  Cell sum = 0;
  for (int u = 0; u < static_cast<int>(shape_.units.size()); ++u) {
    if (!writes(shape_.units[static_cast<std::size_t>(u)], g)) continue;
    for (int m = 0; m < shape_.micro_batches; ++m) sum += gradient_of(g, u, m, step);
  }
  // The other rank that holds the group has gradients like these.
  return group(g).add_replicas ? 2 * sum : sum;
}

Cells TierPlay::params_of(int g, std::int64_t begin_elem, std::size_t values,
                          std::int64_t version) const {
  Cells cells;
  cells.reserve(values);
  const auto first = static_cast<std::int64_t>(units_of(begin_elem));
  for (std::size_t e = 0; e < values; ++e) {
    cells.push_back(mark(Mark::kParam, g, first + static_cast<std::int64_t>(e), version));
  }
  return cells;
}

}  // namespace sluice
