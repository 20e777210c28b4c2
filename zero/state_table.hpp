// The table of states: every persistent array of a rank. Pure; thread-safe.
//
// Only write_state_table() decides which arrays a rank holds. Allocation on all tiers, the memory
// model, budgets, the plan's texts, checkpoints and images read the rows.
//
//   row      one array: of a group (parameters, master weights, a moment, gradients), or of the
//            rank (constants, staging, the ring, inputs on NVMe, an image's records, ...)
//   block    one allocation on the device or on the host: rows of one tag and dtype lie in it one
//            after another. On NVMe every row has extents of its own: one for each place.
//
// A row of states holds elements [first, first + elems) of the rank's owned elements (owned_elems).
// Full parameters and full gradients hold the whole group, shards hold shard_elems. The group's
// partition plan maps owned elements to whole parameters (zero/partition_plan.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "zero/memory_tag.hpp"
#include "zero/shard_shape.hpp"
#include "zero/state_kind.hpp"

namespace sluice {

enum class StateArray {
  // Of a group.
  kFullParameters,  // resident groups: all elements, on the device
  kParameterShard,  // other groups: owned elements, on any tier; none if rounds_master
  kState,           // master weights or a moment (StateRow::state), on any tier
  kRemainder,       // low 16 bits of master weights, on any tier (splits_master)
  kFullGradients,   // all elements, if keeps_full_gradients()
  kGradientShard,   // reduced or rounded gradients of the rank's shard, one row per stream
  // Of the rank.
  kConstants,       // tables that units share
  kLibraries,       // workspaces of libraries
  kCommStaging,     // of collectives
  kReplicaStaging,  // of sums over replicas
  kRing,            // slots of chunks
  kInput,           // a unit's input of one flight, on NVMe
  kImageRecord,
  kBounce,
  kNvmeStore,
};

struct StateRow {
  StateArray array = StateArray::kConstants;
  Tag tag = Tag::kParameters;
  Tier tier = Tier::kDevice;
  DType dtype = DType::kFloat32;  // not used for arrays of bytes
  StateKind state = StateKind::kMaster;
  int group = -1;
  int stream = 0;  // kGradientShard
  int unit = -1;   // kInput
  int flight = 0;  // kInput
  std::int64_t elems = 0;
  std::int64_t first = 0;
  std::int64_t element_bytes = 4;
  // Off-device, elements [second_first, second_first + second_elems) of the row have a second
  // place. Chunks alternate between the two places (runtime/program/write/update_flow.hpp). For
  // chunks of parameters on the host the first place is always current. On the host the second
  // place follows the row in its block.
  std::int64_t second_first = 0;
  std::int64_t second_elems = 0;
  int block = -1;                 // index in StateTable::blocks; -1: on NVMe
  std::int64_t offset_bytes = 0;  // in the block

  [[nodiscard]] std::int64_t bytes() const { return elems * element_bytes; }
  [[nodiscard]] std::int64_t second_bytes() const { return second_elems * element_bytes; }
  // Bytes on the row's tier, with both places. On NVMe: whole pages.
  [[nodiscard]] std::int64_t tier_bytes() const;
};

struct StateBlock {
  StateArray array = StateArray::kConstants;
  Tag tag = Tag::kParameters;
  Tier tier = Tier::kDevice;
  DType dtype = DType::kFloat32;
  std::int64_t element_bytes = 4;  // 1: bytes without a type
  std::int64_t bytes = 0;          // of its rows
  bool collective = false;         // collectives send from it
  bool copied = false;             // on the host: copies to and from the device touch it
  bool reserved = false;           // on the host: counted only, allocated elsewhere
  // Bytes on the tier. Host blocks are whole pages, except reserved blocks.
  [[nodiscard]] std::int64_t tier_bytes() const;
};

// A run of a group's owned elements with a second place on the optimizer's tier: speculated chunks,
// or with an image all chunks.
struct SecondPlace {
  int group = -1;
  std::int64_t begin = 0;
  std::int64_t elems = 0;
};

// Sizes of the NVMe store's host memory (offload/nvme_store.hpp): a buffer of one grain per
// transfer in flight, a checksum per grain.
struct StoreShape {
  int queue_depth = 0;  // 0: the store is not counted
  bool checksums = true;
};

// Input of write_state_table beside the shape.
struct HeldArrays {
  std::vector<int> gradient_streams;  // by group
  std::vector<SecondPlace> second_places;
  std::int64_t constant_bytes = 0;
  std::int64_t library_bytes = 0;
  std::int64_t comm_staging_bytes = 0;
  std::int64_t replica_staging_bytes = 0;  // not in comm_staging_bytes; sent by collectives
  std::int64_t ring_bytes = 0;
  std::int64_t bounce_bytes = 0;
  struct Input {
    int unit = 0;
    int flights = 1;
    std::int64_t bytes = 0;
  };
  std::vector<Input> inputs;  // on NVMe
  StoreShape store;
};

struct StateTable {
  std::vector<StateRow> rows;
  std::vector<StateBlock> blocks;

  // Bytes of the rows on one tier, without the page ends of host blocks (page_end_bytes).
  [[nodiscard]] std::int64_t bytes(Tier tier) const;
  [[nodiscard]] std::int64_t bytes(Tier tier, Tag tag) const;
  // Bytes of the second places on one tier.
  [[nodiscard]] std::int64_t second_bytes(Tier tier) const;
  // Bytes added by rounding host blocks to whole pages.
  [[nodiscard]] std::int64_t page_end_bytes() const;
  // The row of a group's array; null if the rank has none.
  [[nodiscard]] const StateRow* find(int group, StateArray array, Tier tier) const;
  [[nodiscard]] const StateRow* find(int group, StateKind state, Tier tier) const;
};

[[nodiscard]] StateTable write_state_table(const ShardShape& shape, const HeldArrays& held);

// Bytes of one image record: a head, and a checksum per grain of the places. 0 without places.
[[nodiscard]] std::int64_t image_record_bytes(const ShardShape& shape,
                                              std::span<const SecondPlace> places);

// The row's name in the NVMe store, such as "h.0.master". `group`: the group's name.
[[nodiscard]] std::string name_of(const StateRow& row, const std::string& group);

}  // namespace sluice
