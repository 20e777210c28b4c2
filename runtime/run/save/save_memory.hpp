// Host memory of a rank's saves, within the bytes of memory.host that the plan leaves: staging of
// the save under way, and a copy of the rank's states for a save behind the steps. Later saves
// reuse the copy's memory. Borrows the communicator, which outlives the SaveMemory.
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

// Most host memory of a save that is not written behind the steps.
inline constexpr std::int64_t kSaveStagingBytes = std::int64_t{16} << 20;

// Throws BudgetError if `room_bytes` is less than the smallest staging (256 KiB).
void check_saving_room(const std::optional<std::int64_t>& room_bytes);

struct SaveMemoryOptions {
  std::optional<std::int64_t> room_bytes = {};  // as CheckpointingOptions
  int local_ranks = 1;                          // ranks that share this host's memory
  std::int64_t copy_bytes = 0;                  // bytes of the states that this rank saves
  bool states_on_nvme = false;                  // states on NVMe are not copied
};

class SaveMemory {
 public:
  enum class WhyNoCopy { kNone, kOnNvme, kNoRoom };

  // Throws as check_saving_room, on all ranks if one rank has no room.
  SaveMemory(const SaveMemoryOptions& options, Communicator& world);

  // The plan's reason for no copy; kNone does not promise free memory on the host.
  [[nodiscard]] WhyNoCopy why_no_copy() const;
  // Allocates the copy's memory unless done before. Returns the same on every rank; after false no
  // rank holds the memory.
  [[nodiscard]] bool take_copy();
  [[nodiscard]] std::span<std::byte> copy() const;

  // Allocates the staging of one save. Throws BudgetError.
  void take_staging();
  void free_staging() noexcept;
  [[nodiscard]] std::span<float> staging() const;
  // Bytes of each of the staging's four parts: of the caller, the engine, the writer, and the
  // conversion to 16 bits.
  [[nodiscard]] std::int64_t part_bytes() const { return part_bytes_; }

  [[nodiscard]] std::int64_t copy_bytes() const { return options_.copy_bytes; }
  [[nodiscard]] std::int64_t used_bytes() const { return pool_.used_bytes(); }

 private:
  const SaveMemoryOptions options_;
  Communicator& comm_;  // communicator of all ranks
  const std::int64_t part_bytes_;
  HostPool pool_;
  HostBlock copy_;
  HostBlock staging_;
  HostBlock others_staging_;  // counted only: the other three parts
  bool said_no_room_ = false;
};

}  // namespace sluice
