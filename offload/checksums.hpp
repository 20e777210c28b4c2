// One XXH3-64 hash per grain of every extent, kept in memory. A write records the hash, a read
// compares it.
//
// Grain g of an extent covers the bytes from g * grain_bytes. The last grain ends with the declared
// bytes of the extent, so padding is never hashed. Each grain is in one of three states:
//   unwritten   never written: must read as zeros
//   unknown     written by a former run, hash not known: may read as anything
//   hashed      must read as the bytes that were written
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sluice {

class Checksums {
 public:
  explicit Checksums(std::int64_t grain_bytes) : grain_bytes_(grain_bytes) {}

  void add_extent(std::int64_t bytes);

  // Both functions take the bytes [begin, end) of the extent at `data`; `end` may lie in the
  // padding. REQUIRES: `begin` is a multiple of grain_bytes; `end` is a multiple of grain_bytes or
  // at least the declared size.
  void record(int extent, std::int64_t begin, std::int64_t end, const std::byte* data);
  // Offset in the extent of the first grain that does not match its recorded state.
  [[nodiscard]] std::optional<std::int64_t> first_mismatch(int extent, std::int64_t begin,
                                                           std::int64_t end,
                                                           const std::byte* data) const;
  [[nodiscard]] std::int64_t memory_bytes() const;

  void forget();  // makes every grain unknown
  // One value per grain. The values are opaque and have the same meaning in every process.
  [[nodiscard]] std::span<const std::uint64_t> of_extent(int extent) const;
  [[nodiscard]] std::span<std::uint64_t> of_extent(int extent);

 private:
  static constexpr std::uint64_t kUnwritten = 0;
  static constexpr std::uint64_t kUnknown = ~std::uint64_t{0};
  [[nodiscard]] static std::uint64_t hash_of(const std::byte* data, std::int64_t bytes);

  struct Extent {
    std::int64_t bytes = 0;
    std::vector<std::uint64_t> hashes;  // one a grain; kUnwritten and kUnknown are states
  };
  std::int64_t grain_bytes_;
  std::vector<Extent> extents_;
};

}  // namespace sluice
