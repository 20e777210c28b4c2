#include "runtime/data/tokenizer/piece_decoder.hpp"

#include <charconv>
#include <utility>

namespace sluice {
namespace {

std::string replaced(const std::string& text, const std::string& from, const std::string& to) {
  if (from.empty()) return text;
  std::string out;
  std::size_t done = 0;
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, done)) {
    out.append(text, done, at - done);
    out += to;
    done = at + from.size();
  }
  return out.append(text, done);
}

std::string stripped(std::string_view piece, const std::string& content, std::int64_t start,
                     std::int64_t stop) {
  if (content.empty()) return std::string(piece);
  for (; start > 0 && piece.starts_with(content); --start) piece.remove_prefix(content.size());
  for (; stop > 0 && piece.ends_with(content); --stop) piece.remove_suffix(content.size());
  return std::string(piece);
}

}  // namespace

std::optional<char> byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return std::nullopt;
  unsigned value = 0;
  const auto parsed = std::from_chars(piece.data() + 3, piece.data() + 5, value, 16);
  if (parsed.ec != std::errc() || parsed.ptr != piece.data() + 5) return std::nullopt;
  return static_cast<char>(value);
}

void PieceDecoder::add_byte_fallback() { steps_.push_back({Kind::kByteFallback}); }
void PieceDecoder::add_fuse() { steps_.push_back({Kind::kFuse}); }
void PieceDecoder::add_replace(std::string from, std::string to) {
  steps_.push_back({Kind::kReplace, std::move(from), std::move(to)});
}
void PieceDecoder::add_strip(std::string content, std::int64_t start, std::int64_t stop) {
  steps_.push_back({Kind::kStrip, std::move(content), {}, start, stop});
}
void PieceDecoder::add_marks(std::string mark, bool strips_first) {
  steps_.push_back({Kind::kMarks, std::move(mark), " ", strips_first ? 1 : 0, 0});
}

std::string PieceDecoder::decode(std::vector<std::string> pieces, bool continued) const {
  for (const Step& step : steps_) {
    bool first = !continued;
    if (step.kind == Kind::kFuse) {
      std::string all;
      for (const std::string& piece : pieces) all += piece;
      pieces.resize(1);
      pieces[0] = std::move(all);
      continue;
    }
    for (std::string& piece : pieces) {
      if (step.kind == Kind::kByteFallback) {
        if (const auto byte = byte_of_piece(piece)) piece.assign(1, *byte);
      }
      if (step.kind == Kind::kReplace) piece = replaced(piece, step.from, step.to);
      if (step.kind == Kind::kMarks) {
        piece = replaced(piece, step.from, first && step.start > 0 ? "" : step.to);
      }
      if (step.kind == Kind::kStrip) {
        const bool start = first || &piece != &pieces.front();
        piece = stripped(piece, step.from, start ? step.start : 0, step.stop);
      }
      first = false;
    }
  }
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

}  // namespace sluice
