#include "runtime/run/save/save_memory.hpp"

#include <algorithm>
#include <string>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "parallel/comm/text_exchange.hpp"
#include "runtime/run/memory_left.hpp"

namespace sluice {
namespace {

// Buffers of the caller, the engine, the writer, and the conversion to 16 bits.
constexpr std::int64_t kStagingParts = 4;
constexpr std::int64_t kSmallestPart = std::int64_t{64} << 10;
constexpr double kShareOfFreeMemory = 0.8;

std::int64_t part_bytes_of(const std::optional<std::int64_t>& room) {
  constexpr std::int64_t kLargestPart = kSaveStagingBytes / kStagingParts;
  if (!room) return kLargestPart;
  const std::int64_t part =
      std::min(kLargestPart, *room / kStagingParts / kSmallestPart * kSmallestPart);
  if (part > 0) return part;
  throw BudgetError(
      "memory.host: saving needs " + format_bytes(kStagingParts * kSmallestPart) +
      " a rank, and the plan leaves " + format_bytes(std::max<std::int64_t>(0, *room)) +
      "; give memory.host more, or do without checkpoints: checkpoint.at_end: false, and "
      "neither checkpoint.every nor time_limit");
}

// Ranks of a pipeline have different plans and room. A rank that threw alone would leave the other
// ranks in their first collective.
std::int64_t agreed_part_bytes(const std::optional<std::int64_t>& room, Communicator& comm) {
  std::int64_t part = 0;
  std::string problem;
  try {
    part = part_bytes_of(room);
  } catch (const BudgetError& error) {
    problem = error.what();
  }
  problem = first_errors(exchange_text(comm, problem));
  if (!problem.empty()) throw BudgetError(problem);
  return part;
}

// A pool of budget 0 has no limit; part_bytes_of refuses a room of 0 bytes.
std::int64_t budget_of(const std::optional<std::int64_t>& room) { return room.value_or(0); }

}  // namespace

void check_saving_room(const std::optional<std::int64_t>& room_bytes) {
  (void)part_bytes_of(room_bytes);
}

SaveMemory::SaveMemory(const SaveMemoryOptions& options, Communicator& world)
    : options_(options),
      comm_(world),
      part_bytes_(agreed_part_bytes(options.room_bytes, world)),
      pool_(budget_of(options.room_bytes)) {}

SaveMemory::WhyNoCopy SaveMemory::why_no_copy() const {
  if (options_.states_on_nvme) return WhyNoCopy::kOnNvme;
  const std::int64_t needed = options_.copy_bytes + kStagingParts * part_bytes_;
  return options_.room_bytes && needed > *options_.room_bytes ? WhyNoCopy::kNoRoom
                                                              : WhyNoCopy::kNone;
}

bool SaveMemory::take_copy() {
  const std::int64_t bytes = options_.copy_bytes;
  bool mine = why_no_copy() == WhyNoCopy::kNone;
  if (mine && copy_.bytes() == 0) {
    const double free = kShareOfFreeMemory * static_cast<double>(memory_left_bytes());
    mine = static_cast<double>(bytes) * options_.local_ranks <= free;
    try {
      if (mine) copy_ = pool_.allocate("checkpoint", std::max<std::int64_t>(1, bytes));
    } catch (const BudgetError&) {
      mine = false;
    }
  }
  const bool all = on_all_ranks(comm_, mine);
  if (!all && !said_no_room_ && why_no_copy() == WhyNoCopy::kNone && comm_.rank() == 0) {
    said_no_room_ = true;
    log_warning("checkpoint.async: a host has no free memory for a copy of " + format_bytes(bytes) +
                " a rank; the steps wait while a checkpoint is written");
  }
  if (!all) copy_.reset();
  return all;
}

std::span<std::byte> SaveMemory::copy() const {
  return {copy_.data(), static_cast<std::size_t>(options_.copy_bytes)};
}

void SaveMemory::take_staging() {
  staging_ = pool_.allocate("checkpoint_staging", part_bytes_);
  others_staging_ = pool_.reserve("checkpoint_staging", (kStagingParts - 1) * part_bytes_);
}

void SaveMemory::free_staging() noexcept {
  staging_.reset();
  others_staging_.reset();
}

std::span<float> SaveMemory::staging() const {
  const auto floats = static_cast<std::size_t>(part_bytes_) / sizeof(float);
  return {reinterpret_cast<float*>(staging_.data()), floats};
}

}  // namespace sluice
