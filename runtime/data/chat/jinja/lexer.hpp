// Splits a template into text and tokens. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::jinja {

enum class TokenKind : std::uint8_t {
  kText,
  kBlockBegin,
  kBlockEnd,
  kOutputBegin,
  kOutputEnd,
  kName,
  kString,
  kInteger,
  kReal,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 0;
  std::string text{};  // of a string: without quotes, escapes replaced
};

// The last token is kEnd. trim_blocks: a line end after a block belongs to the block.
// lstrip_blocks: so do blanks before a block that begins its line. Throws SyntaxError.
[[nodiscard]] std::vector<Token> tokenize(const std::string& source);

}  // namespace sluice::jinja
