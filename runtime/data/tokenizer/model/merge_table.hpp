// The merges of byte-pair encoding, and their application to the symbols of one word: lowest rank
// first, leftmost among equals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

struct BpeMerge {
  std::int32_t left = 0, right = 0;  // ids side by side
  std::int32_t result = 0;           // the id that replaces them
  std::int32_t rank = 0;             // lower merges first; several merges may share one
};

// Open-addressed map (left, right) -> (rank, result). Thread-safe.
class MergeTable {
 public:
  struct Found {
    std::int32_t rank = kNone;  // kNone: the two do not merge
    std::int32_t result = 0;
  };
  static constexpr std::int32_t kNone = 0x7FFFFFFF;
  explicit MergeTable(const std::vector<BpeMerge>& merges);
  [[nodiscard]] Found find(std::int32_t left, std::int32_t right) const;
  // Merges `symbols` in place until no pair merges. Returns how many are left. Negative symbols
  // merge with none. A word of n symbols costs n log n.
  [[nodiscard]] std::size_t merge(std::span<std::int32_t> symbols) const;

 private:
  struct Slot {
    std::uint64_t key = kFree;
    Found found;
  };
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};  // ids are not negative
  [[nodiscard]] std::size_t slot_of(std::uint64_t key) const;
  [[nodiscard]] std::size_t merge_short(std::span<std::int32_t> symbols) const;
  [[nodiscard]] std::size_t merge_long(std::span<std::int32_t> symbols) const;
  std::vector<Slot> slots_;
  unsigned shift_ = 0;
};

}  // namespace sluice
