// Tokens by position, independent of their storage. Thread-safe after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace sluice {

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  [[nodiscard]] virtual std::int64_t size() const = 0;  // tokens
  // Copies the stored tokens [first, first + out.size()) without a check of their range. REQUIRES:
  // first >= 0 and first + out.size() <= size().
  virtual void read(std::int64_t first, std::span<std::int64_t> out) const = 0;
  // Appends the positions in (first, last) at which a document begins, rising; none of a source
  // that knows no documents. REQUIRES: 0 <= first and last <= size().
  virtual void add_starts(std::int64_t /*first*/, std::int64_t /*last*/,
                          std::vector<std::int64_t>& /*out*/) const {}
};

// A source of documents. Document d is the tokens [starts[d], starts[d + 1]).
class DocumentSource : public TokenSource {
 public:
  // documents + 1 positions in ascending order, from 0 to size(). The span lives as long as the
  // source.
  [[nodiscard]] virtual std::span<const std::int64_t> document_starts() const = 0;
  void add_starts(std::int64_t first, std::int64_t last,
                  std::vector<std::int64_t>& out) const override;
};

enum class TokenType : std::uint8_t { kUInt8, kInt8, kUInt16, kInt16, kInt32, kUInt32, kInt64 };

[[nodiscard]] std::int64_t size_of(TokenType type);  // bytes
// dst[i] = token i of that type in `src`. `src` may be unaligned.
void widen_tokens(TokenType type, const std::byte* src, std::span<std::int64_t> dst);

struct TokenRange {
  std::int64_t begin = 0, end = 0;  // tokens of a source
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

// Ranges of other sources, concatenated. Each range begins a document.
class ChainedSource : public TokenSource {
 public:
  struct Piece {
    std::shared_ptr<const TokenSource> source;
    TokenRange range;
  };
  explicit ChainedSource(std::vector<Piece> pieces);
  [[nodiscard]] std::int64_t size() const override { return starts_.back(); }
  void read(std::int64_t first, std::span<std::int64_t> out) const override;
  void add_starts(std::int64_t first, std::int64_t last,
                  std::vector<std::int64_t>& out) const override;

 private:
  // The piece that holds a position. REQUIRES: the position is below size().
  [[nodiscard]] std::size_t piece_at(std::int64_t position) const;

  std::vector<Piece> pieces_;  // none empty
  std::vector<std::int64_t> starts_;
};

// The largest token and the smallest of the source; {0, -1} of an empty source. Reads all tokens.
struct TokenExtent {
  std::int64_t smallest = 0, largest = -1;
};
[[nodiscard]] TokenExtent extent_of(const TokenSource& source);

}  // namespace sluice
