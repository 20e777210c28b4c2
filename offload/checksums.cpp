#include "offload/checksums.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.hpp"

namespace sluice {
namespace {

bool all_zero(const std::byte* data, std::int64_t bytes) {
  return bytes == 0 || (data[0] == std::byte{0} &&
                        std::memcmp(data, data + 1, static_cast<std::size_t>(bytes - 1)) == 0);
}

}  // namespace

std::uint64_t Checksums::hash_of(const std::byte* data, std::int64_t bytes) {
  const std::uint64_t hash = XXH3_64bits(data, static_cast<std::size_t>(bytes));
  return hash != kUnwritten && hash != kUnknown ? hash : 1;
}

void Checksums::add_extent(std::int64_t bytes) {
  const auto grains = static_cast<std::size_t>(round_up(bytes, grain_bytes_) / grain_bytes_);
  extents_.push_back({bytes, std::vector<std::uint64_t>(grains, 0)});
}

void Checksums::record(int extent, std::int64_t begin, std::int64_t end, const std::byte* data) {
  Extent& e = extents_.at(static_cast<std::size_t>(extent));
  end = std::min(end, e.bytes);
  for (std::int64_t at = begin; at < end; at += grain_bytes_) {
    const std::int64_t bytes = std::min(grain_bytes_, end - at);
    e.hashes.at(static_cast<std::size_t>(at / grain_bytes_)) = hash_of(data + (at - begin), bytes);
  }
}

std::optional<std::int64_t> Checksums::first_mismatch(int extent, std::int64_t begin,
                                                      std::int64_t end,
                                                      const std::byte* data) const {
  const Extent& e = extents_.at(static_cast<std::size_t>(extent));
  end = std::min(end, e.bytes);
  for (std::int64_t at = begin; at < end; at += grain_bytes_) {
    const std::int64_t bytes = std::min(grain_bytes_, end - at);
    const std::uint64_t expected = e.hashes.at(static_cast<std::size_t>(at / grain_bytes_));
    const std::byte* grain = data + (at - begin);
    if (expected == kUnknown) continue;
    const bool same =
        expected == kUnwritten ? all_zero(grain, bytes) : hash_of(grain, bytes) == expected;
    if (!same) return at;
  }
  return std::nullopt;
}

void Checksums::forget() {
  for (Extent& e : extents_) std::fill(e.hashes.begin(), e.hashes.end(), kUnknown);
}

std::span<const std::uint64_t> Checksums::of_extent(int extent) const {
  return extents_.at(static_cast<std::size_t>(extent)).hashes;
}
std::span<std::uint64_t> Checksums::of_extent(int extent) {
  return extents_.at(static_cast<std::size_t>(extent)).hashes;
}

std::int64_t Checksums::memory_bytes() const {
  std::int64_t total = 0;
  for (const Extent& e : extents_) total += std::ssize(e.hashes) * 8;
  return total;
}

}  // namespace sluice
