#include "runtime/data/token_source.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"

namespace sluice {
namespace {

template <typename Stored>
void widen(const std::byte* src, std::span<std::int64_t> dst) {
  for (std::int64_t& token : dst) {
    Stored stored;
    std::memcpy(&stored, src, sizeof stored);
    token = static_cast<std::int64_t>(stored);  // NOLINT(bugprone-signed-char-misuse): int8 tokens
    src += sizeof stored;
  }
}

}  // namespace

std::int64_t size_of(TokenType type) {
  switch (type) {
    case TokenType::kUInt8:
    case TokenType::kInt8:
      return 1;
    case TokenType::kUInt16:
    case TokenType::kInt16:
      return 2;
    case TokenType::kInt32:
    case TokenType::kUInt32:
      return 4;
    case TokenType::kInt64:
      return 8;
  }
  return 0;
}

void widen_tokens(TokenType type, const std::byte* src, std::span<std::int64_t> dst) {
  switch (type) {
    case TokenType::kUInt8:
      return widen<std::uint8_t>(src, dst);
    case TokenType::kInt8:
      return widen<std::int8_t>(src, dst);
    case TokenType::kUInt16:
      return widen<std::uint16_t>(src, dst);
    case TokenType::kInt16:
      return widen<std::int16_t>(src, dst);
    case TokenType::kInt32:
      return widen<std::int32_t>(src, dst);
    case TokenType::kUInt32:
      return widen<std::uint32_t>(src, dst);
    case TokenType::kInt64:
      return widen<std::int64_t>(src, dst);
  }
}

ChainedSource::ChainedSource(std::vector<Piece> pieces) : starts_{0} {
  for (Piece& piece : pieces) {
    check(0 <= piece.range.begin && piece.range.begin <= piece.range.end &&
              piece.range.end <= piece.source->size(),
          "ChainedSource: a range outside its source");
    if (piece.range.begin == piece.range.end) continue;
    starts_.push_back(starts_.back() + piece.range.end - piece.range.begin);
    pieces_.push_back(std::move(piece));
  }
}

void ChainedSource::read(std::int64_t first, std::span<std::int64_t> out) const {
  check(first >= 0 && first + static_cast<std::int64_t>(out.size()) <= size(),
        "ChainedSource::read outside the source");
  if (out.empty()) return;
  for (std::size_t index = piece_at(first); !out.empty(); ++index) {
    const Piece& piece = pieces_[index];
    const std::int64_t skipped = first - starts_[index];
    const auto count = std::min(out.size(), static_cast<std::size_t>(starts_[index + 1] - first));
    piece.source->read(piece.range.begin + skipped, out.first(count));
    out = out.subspan(count);
    first += static_cast<std::int64_t>(count);
  }
}

std::size_t ChainedSource::piece_at(std::int64_t position) const {
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), position);
  return static_cast<std::size_t>(after - starts_.begin() - 1);
}

void ChainedSource::add_starts(std::int64_t first, std::int64_t last,
                               std::vector<std::int64_t>& out) const {
  if (first >= last) return;
  for (std::size_t index = piece_at(first); index < pieces_.size() && starts_[index] < last;
       ++index) {
    const Piece& piece = pieces_[index];
    const std::int64_t shift = starts_[index] - piece.range.begin;
    if (starts_[index] > first) out.push_back(starts_[index]);
    const std::size_t begin = out.size();
    piece.source->add_starts(std::max(first, starts_[index]) - shift,
                             std::min(last, starts_[index + 1]) - shift, out);
    for (std::size_t i = begin; i < out.size(); ++i) out[i] += shift;
  }
}

void DocumentSource::add_starts(std::int64_t first, std::int64_t last,
                                std::vector<std::int64_t>& out) const {
  const auto starts = document_starts();
  auto at = std::upper_bound(starts.begin(), starts.end(), first);
  // Documents without tokens begin where the next one begins.
  for (std::int64_t before = first; at != starts.end() && *at < last; before = *at++) {
    if (*at != before) out.push_back(*at);
  }
}

TokenExtent extent_of(const TokenSource& source) {
  constexpr std::int64_t kBlock = 1 << 16;
  std::vector<std::int64_t> block;
  TokenExtent extent;
  for (std::int64_t first = 0; first < source.size(); first += kBlock) {
    block.resize(static_cast<std::size_t>(std::min(kBlock, source.size() - first)));
    source.read(first, block);
    const auto [low, high] = std::minmax_element(block.begin(), block.end());
    extent.smallest = first == 0 ? *low : std::min(extent.smallest, *low);
    extent.largest = std::max(first == 0 ? *high : extent.largest, *high);
  }
  return extent;
}

}  // namespace sluice
