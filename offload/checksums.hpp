// One XXH3-64 for every grain of every extent, kept in memory: made at write, compared at read.
// A grain is grain_bytes of an extent from its begin; the last one ends with the declared bytes, so
// padding is never hashed. A grain that was never written must read as zeros; one of which nothing
// is known, in files that a former run left, as anything.
// One thread at a time.
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

  // The bytes [begin, end) of the extent, at `data`; may reach into the padding.
  // REQUIRES: begin is a multiple of grain_bytes, and end one or past the last declared byte.
  void record(int extent, std::int64_t begin, std::int64_t end, const std::byte* data);
  // Offset in the extent of the first grain that is not what was written.
  [[nodiscard]] std::optional<std::int64_t> first_mismatch(int extent, std::int64_t begin,
                                                           std::int64_t end,
                                                           const std::byte* data) const;
  [[nodiscard]] std::int64_t memory_bytes() const;

  // From now on nothing is known of any grain.
  void forget();
  // By grain of an extent; opaque, the same in every process.
  [[nodiscard]] std::span<const std::uint64_t> of_extent(int extent) const;
  [[nodiscard]] std::span<std::uint64_t> of_extent(int extent);

 private:
  static constexpr std::uint64_t kUnwritten = 0;
  static constexpr std::uint64_t kUnknown = ~std::uint64_t{0};
  [[nodiscard]] static std::uint64_t hash_of(const std::byte* data, std::int64_t bytes);

  struct Extent {
    std::int64_t bytes = 0;
    std::vector<std::uint64_t> hashes;  // kUnwritten, kUnknown
  };
  std::int64_t grain_bytes_;
  std::vector<Extent> extents_;
};

}  // namespace sluice
