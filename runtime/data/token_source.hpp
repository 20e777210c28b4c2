// Tokens by position, whatever holds them. Thread-safe after construction.
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
  // Tokens [first, first + out.size()) as they are stored; nothing is said about their range.
  // REQUIRES: first >= 0 and first + out.size() <= size().
  virtual void read(std::int64_t first, std::span<std::int64_t> out) const = 0;
};

// A source made of documents. Document d is the tokens [starts[d], starts[d + 1]).
class DocumentSource : public TokenSource {
 public:
  // documents + 1 positions, from 0 to size(), not falling. The span lives as long as the source.
  [[nodiscard]] virtual std::span<const std::int64_t> document_starts() const = 0;
};

enum class TokenType : std::uint8_t { kUInt8, kInt8, kUInt16, kInt16, kInt32, kUInt32, kInt64 };

[[nodiscard]] std::int64_t size_of(TokenType type);  // bytes
// dst[i] = the i-th token of that type from `src`, which need not be aligned.
void widen_tokens(TokenType type, const std::byte* src, std::span<std::int64_t> dst);

struct TokenRange {
  std::int64_t begin = 0, end = 0;  // tokens of a source
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

// Ranges of other sources, one after the other.
class ChainedSource : public TokenSource {
 public:
  struct Piece {
    std::shared_ptr<const TokenSource> source;
    TokenRange range;
  };
  explicit ChainedSource(std::vector<Piece> pieces);
  [[nodiscard]] std::int64_t size() const override { return starts_.back(); }
  void read(std::int64_t first, std::span<std::int64_t> out) const override;

 private:
  std::vector<Piece> pieces_;  // none empty
  std::vector<std::int64_t> starts_;
};

// The largest token, and the smallest, of the whole source; {0, -1} where it is empty. Reads
// everything.
struct TokenExtent {
  std::int64_t smallest = 0, largest = -1;
};
[[nodiscard]] TokenExtent extent_of(const TokenSource& source);

}  // namespace sluice
