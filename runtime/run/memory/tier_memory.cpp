#include "runtime/run/memory/tier_memory.hpp"

#include <algorithm>
#include <map>

#include "base/index.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kPage = 4096;

std::string_view array_name(StateArray array) {
  switch (array) {
    case StateArray::kFullParameters:
      return "full parameters";
    case StateArray::kParameterShard:
      return "parameter shard";
    case StateArray::kState:
      return "optimizer state";
    case StateArray::kRemainder:
      return "remainders of master weights";
    case StateArray::kFullGradients:
      return "full gradients";
    case StateArray::kGradientShard:
      return "gradient shard";
    case StateArray::kConstants:
      return "constants";
    case StateArray::kLibraries:
      return "workspaces of libraries";
    case StateArray::kCommStaging:
      return "staging of collectives";
    case StateArray::kReplicaStaging:
      return "staging of sums over replicas";
    case StateArray::kRing:
      return "ring";
    case StateArray::kInput:
      return "input of a unit";
    case StateArray::kImageRecord:
      return "image record";
    case StateArray::kBounce:
      return "bounce buffer";
    case StateArray::kNvmeStore:
      return "NVMe store";
  }
  return "";
}

std::string buffer_name(const Buffer& buffer, std::span<const std::string> group_names) {
  std::string name;
  const auto add = [&name](const std::string& part) { name += (name.empty() ? "" : ", ") + part; };
  if (buffer.unit >= 0) add("unit " + std::to_string(buffer.unit));
  if (buffer.group >= 0) add("group " + nth(group_names, buffer.group));
  if (buffer.micro_batch >= 0) add("micro-batch " + std::to_string(buffer.micro_batch));
  return name.empty() ? std::string(name_of(buffer.tag)) : name;
}

class TierMap {
 public:
  TierMap(const Program& program, std::span<const OpTiming> timings,
          std::span<const std::string> group_names, Tier tier)
      : program_(program), timings_(timings), group_names_(group_names), tier_(tier) {}

  TierMemory make() {
    add_blocks();
    const std::int64_t arena = tier_ == Tier::kDevice ? program_.arena_bytes
                               : tier_ == Tier::kHost ? program_.host_arena_bytes
                                                      : 0;
    if (arena > 0) {
      memory_.arena_address = take(arena);
      memory_.segments.push_back({"arena", memory_.arena_address, arena, {}});
    }
    for (std::size_t i = 0; i < program_.ops.size(); ++i) add_op(i);
    return std::move(memory_);
  }

 private:
  // Every allocation has addresses of its own, with a page between it and the next.
  std::int64_t take(std::int64_t bytes) {
    const std::int64_t address = next_;
    next_ += (bytes + 2 * kPage - 1) / kPage * kPage;
    return address;
  }

  MemoryRange range_of(const StateRow& row, std::int64_t address) const {
    return {.name = name_of(row, row.group < 0 ? std::string() : nth(group_names_, row.group)),
            .array = std::string(array_name(row.array)),
            .tag = row.tag,
            .address = address,
            .bytes = row.tier_bytes()};
  }

  // NVMe has no blocks: each row is an allocation.
  void add_blocks() {
    const StateTable& states = program_.states;
    std::vector<std::size_t> segment_of(states.blocks.size());
    for (std::size_t b = 0; b < states.blocks.size(); ++b) {
      const StateBlock& block = states.blocks[b];
      if (block.tier != tier_ || block.tier_bytes() == 0) continue;
      segment_of[b] = memory_.segments.size();
      memory_.segments.push_back(
          {std::string(array_name(block.array)), take(block.tier_bytes()), block.tier_bytes(), {}});
    }
    for (const StateRow& row : states.rows) {
      if (row.tier != tier_ || row.tier_bytes() == 0) continue;
      if (row.block < 0) {
        memory_.segments.push_back(
            {std::string(array_name(row.array)), take(row.tier_bytes()), row.tier_bytes(), {}});
        memory_.segments.back().held.push_back(range_of(row, memory_.segments.back().address));
        continue;
      }
      MemorySegment& segment = memory_.segments[nth(segment_of, row.block)];
      segment.held.push_back(range_of(row, segment.address + row.offset_bytes));
    }
    for (MemorySegment& segment : memory_.segments) {
      std::sort(segment.held.begin(), segment.held.end(),
                [](const auto& a, const auto& b) { return a.address < b.address; });
    }
  }

  void add_op(std::size_t i) {
    const Op& op = program_.ops[i];
    const bool timed = i < timings_.size();
    if (timed) now_us_ = std::max(now_us_, timings_[i].begin_us - timings_.front().wait_us);
    for (const BufferId b : op.dead_before) die(b, i);
    for (const BufferId b : op.live) bear(b, i);
    const std::int64_t workspace = tier_ == Tier::kDevice ? op.workspace_bytes : 0;
    const std::size_t life = memory_.lives.size();
    if (workspace > 0) {
      const MemoryRange range{"workspace of " + describe(op), "", Tag::kWorkspace, take(workspace),
                              workspace};
      memory_.lives.push_back({range, false, static_cast<OpId>(i), static_cast<OpId>(i)});
      memory_.changes.push_back({life, true, now_us_});
    }
    if (timed && op.lane == Lane::kCompute) {
      now_us_ = std::max(now_us_, timings_[i].end_us - timings_.front().wait_us);
    }
    if (workspace > 0) memory_.changes.push_back({life, false, now_us_});
    for (const BufferId b : op.dead_after) die(b, i);
  }

  void bear(BufferId id, std::size_t op) {
    const Buffer& buffer = nth(program_.buffers, id);
    if (buffer.tier != tier_ || buffer.bytes == 0) return;
    const std::int64_t address =
        buffer.in_arena ? memory_.arena_address + buffer.arena_offset : take(buffer.bytes);
    alive_[id] = memory_.lives.size();
    memory_.changes.push_back({memory_.lives.size(), true, now_us_});
    memory_.lives.push_back(
        {{buffer_name(buffer, group_names_), "", buffer.tag, address, buffer.bytes},
         buffer.in_arena,
         static_cast<OpId>(op),
         -1});
  }

  void die(BufferId id, std::size_t op) {
    const auto found = alive_.find(id);
    if (found == alive_.end()) return;
    memory_.lives[found->second].dies = static_cast<OpId>(op);
    memory_.changes.push_back({found->second, false, now_us_});
    alive_.erase(found);
  }

  const Program& program_;
  const std::span<const OpTiming> timings_;
  const std::span<const std::string> group_names_;
  const Tier tier_;
  TierMemory memory_;
  std::map<BufferId, std::size_t> alive_;      // index in TierMemory::lives
  std::int64_t next_ = std::int64_t{1} << 32;  // looks like an address
  std::int64_t now_us_ = 0;
};

}  // namespace

TierMemory tier_memory(const Program& program, std::span<const OpTiming> timings,
                       std::span<const std::string> group_names, Tier tier) {
  return TierMap(program, timings, group_names, tier).make();
}

}  // namespace sluice
