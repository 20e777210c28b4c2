// Executes the operations that move parameter shards, reduced gradients and inputs of units between
// tiers. ChunkUpdates moves chunks of optimizer states.
//
// run() may be called from the threads of several lanes at a time: each operation touches its own
// bucket, group or input.
#pragma once

#include <span>

#include "runtime/engine/tiers/off_device_group.hpp"
#include "runtime/engine/tiers/tier_copies.hpp"
#include "runtime/program/program.hpp"
#include "runtime/program/step_shape.hpp"

namespace sluice {

class TierMoves {
 public:
  // All references outlive this. `arena`: the slots on the host.
  TierMoves(ShardStore& store, TierCopies& copies, const StepShape& shape,
            std::span<const OffDeviceGroup> groups, std::byte* arena, int dp_rank)
      : store_(store),
        copies_(copies),
        shape_(shape),
        groups_(groups),
        arena_(arena),
        dp_rank_(dp_rank) {}

  // Throws Error if the operation moves nothing between tiers.
  [[nodiscard]] Ticket run(const Program& program, const Op& op, DevicePtr device_arena);

  // Adds a group's gradient shards of all streams on the host into the first.
  void add_gradient_streams(int g);

 private:
  void fetch_shard(const Op& op, const std::byte* staging, DevicePtr gathered);
  [[nodiscard]] Ticket move_bucket(const Program& program, const Op& op, std::byte* host);
  void store_grads(const Program& program, const Op& op, DevicePtr reduced, std::byte* host);
  void add_grads(const std::vector<BucketPiece>& pieces, DevicePtr reduced, std::byte* host);
  // Where the piece's gradients are stored on the host. For a row on NVMe: `host`, which moves on.
  [[nodiscard]] std::byte* place_of(const BucketPiece& piece, std::byte*& host) const;
  [[nodiscard]] RowId grads(const BucketPiece& piece) const;

  ShardStore& store_;
  TierCopies& copies_;
  const StepShape& shape_;
  const std::span<const OffDeviceGroup> groups_;
  std::byte* const arena_;
  const int dp_rank_;
};

}  // namespace sluice
