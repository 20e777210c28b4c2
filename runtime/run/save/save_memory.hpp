// Host memory of a rank's saves, out of what the plan leaves of memory.host: the staging of the
// save under way, and a copy of the rank's states for a save behind the steps. The copy's memory
// is kept for later saves. Owns the memory; borrows the communicator, which outlives it.
//
// The constructor and take_copy() are collective. Not thread-safe; another thread may use the
// memory itself while it is held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "offload/host_pool.hpp"
#include "parallel/comm/communicator.hpp"

namespace sluice {

// What a save that is not written behind the steps takes of the host's memory, at most.
inline constexpr std::int64_t kSaveStagingBytes = std::int64_t{16} << 20;

// Throws BudgetError where `room_bytes` is too little for the smallest staging (256 KiB).
void check_saving_room(const std::optional<std::int64_t>& room_bytes);

struct SaveMemoryOptions {
  std::optional<std::int64_t> room_bytes = {};  // as CheckpointingOptions
  int local_ranks = 1;                          // that share this host's memory
  std::int64_t copy_bytes = 0;                  // of the states that this rank saves
  bool states_on_nvme = false;                  // no copy is made of those
};

class SaveMemory {
 public:
  enum class WhyNoCopy { kNone, kOnNvme, kNoRoom };

  // Throws as check_saving_room, on all ranks where one has no room.
  SaveMemory(const SaveMemoryOptions& options, Communicator& world);

  // By the plan alone: the host may still lack free memory.
  [[nodiscard]] WhyNoCopy why_no_copy() const;
  // Takes the copy's memory, if it is not there yet. The same answer on every rank; false leaves no
  // rank with it.
  [[nodiscard]] bool take_copy();
  [[nodiscard]] std::span<std::byte> copy() const;

  // For one save. Throws BudgetError.
  void take_staging();
  void free_staging() noexcept;
  [[nodiscard]] std::span<float> staging() const;
  // Of each part of the staging: the caller's, the engine's, the writer's.
  [[nodiscard]] std::int64_t part_bytes() const { return part_bytes_; }

  [[nodiscard]] std::int64_t copy_bytes() const { return options_.copy_bytes; }
  [[nodiscard]] std::int64_t used_bytes() const { return pool_.used_bytes(); }

 private:
  const SaveMemoryOptions options_;
  Communicator& comm_;  // of all ranks
  const std::int64_t part_bytes_;
  HostPool pool_;
  HostBlock copy_;
  HostBlock staging_;
  HostBlock others_staging_;  // counted: the engine's and the writer's
  bool said_no_room_ = false;
};

}  // namespace sluice
