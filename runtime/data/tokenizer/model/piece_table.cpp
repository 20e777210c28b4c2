#include "runtime/data/tokenizer/model/piece_table.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace sluice {
namespace {

std::uint64_t hash_of(std::string_view bytes) {
  constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15U;
  std::uint64_t hash = bytes.size() * kFactor;
  while (!bytes.empty()) {
    std::uint64_t word = 0;
    const std::size_t used = std::min(bytes.size(), sizeof word);
    std::memcpy(&word, bytes.data(), used);
    hash = (hash ^ word) * kFactor;
    hash ^= hash >> 32U;
    bytes.remove_prefix(used);
  }
  return hash;
}

}  // namespace

PieceTable::PieceTable(const std::vector<std::string>& pieces)
    : slots_(std::bit_ceil(pieces.size() * 2 + 2)) {
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    const std::string& piece = pieces[id];
    if (piece.empty() || find(piece) >= 0) continue;
    const std::uint64_t hash = hash_of(piece);
    std::size_t at = hash & (slots_.size() - 1);
    while (slots_[at].id >= 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {static_cast<std::uint32_t>(hash >> 32U), static_cast<std::int32_t>(id),
                  bytes_.size(), piece.size()};
    bytes_ += piece;
  }
}

std::int32_t PieceTable::find(std::string_view piece) const {
  if (slots_.empty()) return -1;
  const std::uint64_t hash = hash_of(piece);
  for (std::size_t at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[at];
    if (slot.id < 0) return -1;
    if (slot.check == static_cast<std::uint32_t>(hash >> 32U) &&
        std::string_view(bytes_).substr(slot.first, slot.size) == piece) {
      return slot.id;
    }
  }
}

}  // namespace sluice
