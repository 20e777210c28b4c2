// What a replay of a program (replay.hpp) knows of gradients and groups.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/program/program.hpp"

namespace sluice {

// What memory holds before anything is written to it; large enough to spoil every sum it enters.
inline constexpr std::int64_t kPoison = std::int64_t{1} << 50;

struct UseOfUnit {
  OpKind kind;
  int unit;
  int micro_batch;
};

// A full gradient.
struct GradPlay {
  std::int64_t value = kPoison;  // of every element
  int writes = 0;                // units that have written since it was opened
  std::int64_t sent = 0;         // elements of the shard reduced since
  int last_reduction = -1;
};

struct GroupPlay {
  int gather = -1;                     // newest gather, -1: none
  bool has_slot = false;               // gathered parameters
  std::map<BufferId, GradPlay> grads;  // by slot; one without a slot under -1
  BufferId newest = -1;
  std::vector<std::vector<std::int64_t>> shards;  // by stream, by kAlignElems elements
  std::int64_t gathered_back = 0;                 // elements of the shard, stage 0
  bool updated = false;
};

}  // namespace sluice
