// From the bytes of a piece to its id.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// Open-addressed. Thread-safe.
class PieceTable {
 public:
  PieceTable() = default;
  // Empty pieces are left out. Among equal pieces the first has the name.
  explicit PieceTable(const std::vector<std::string>& pieces);
  [[nodiscard]] std::int32_t find(std::string_view piece) const;  // -1: none
  [[nodiscard]] bool empty() const { return slots_.empty(); }

 private:
  struct Slot {
    std::uint32_t check = 0;  // upper half of the hash
    std::int32_t id = -1;     // -1: free
    std::size_t first = 0;    // in bytes_
    std::size_t size = 0;
  };
  std::vector<Slot> slots_;
  std::string bytes_;
};

}  // namespace sluice
