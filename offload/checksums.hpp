// One XXH3-64 for every grain of every extent, kept in memory: made at write, compared at read.
// A grain is grain_bytes of an extent from its begin; the last one ends with the declared bytes, so
// padding is never hashed. A grain that was never written must read as zeros.
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace sluice {

class Checksums {
 public:
  explicit Checksums(std::int64_t grain_bytes) : grain_bytes_(grain_bytes) {}

  void add_extent(std::int64_t bytes);

  // The bytes [begin, end) of the extent, at `data`; may reach into the padding.
  // REQUIRES: begin is a multiple of grain_bytes, and end one or past the last declared byte.
  void record(int extent, std::int64_t begin, std::int64_t end, const std::byte* data);
  // Offset in the extent of the first grain that is not what was written.
  [[nodiscard]] std::optional<std::int64_t> first_mismatch(int extent, std::int64_t begin,
                                                           std::int64_t end,
                                                           const std::byte* data) const;
  [[nodiscard]] std::int64_t memory_bytes() const;

 private:
  struct Extent {
    std::int64_t bytes = 0;
    std::vector<std::uint64_t> hashes;  // 0: never written
  };
  std::int64_t grain_bytes_;
  std::vector<Extent> extents_;
};

}  // namespace sluice
