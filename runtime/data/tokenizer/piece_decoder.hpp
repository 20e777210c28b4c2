// From the pieces of ids back to text.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// Steps over the list of pieces. Thread-safe.
class PieceDecoder {
 public:
  void add_byte_fallback();  // <0x0A> becomes a byte; bytes may be no valid UTF-8
  void add_fuse();           // one piece
  void add_replace(std::string from, std::string to);
  // Up to `start` and `stop` occurrences at the ends of each piece.
  void add_strip(std::string content, std::int64_t start, std::int64_t stop);
  // Marks become spaces; those of the first piece vanish if `strips_first`.
  void add_marks(std::string mark, bool strips_first);
  // `continued`: text lies before, so the start of the first piece is not stripped.
  [[nodiscard]] std::string decode(std::vector<std::string> pieces, bool continued) const;

 private:
  enum class Kind { kByteFallback, kFuse, kReplace, kStrip, kMarks };
  struct Step {
    Kind kind;
    std::string from{}, to{};
    std::int64_t start = 0, stop = 0;
  };
  std::vector<Step> steps_;
};

// The byte of a piece such as <0x0A>.
[[nodiscard]] std::optional<char> byte_of_piece(std::string_view piece);

}  // namespace sluice
