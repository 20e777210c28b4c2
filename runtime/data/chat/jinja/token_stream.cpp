#include "runtime/data/chat/jinja/expression_parser.hpp"

namespace sluice::jinja {
namespace {

std::string described(const Token& token) {
  switch (token.kind) {
    case TokenKind::kText:
      return "text";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kOutputBegin:
      return "'{{'";
    case TokenKind::kOutputEnd:
      return "'}}'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kEnd:
      return "the end of the template";
    default:
      return "'" + token.text + "'";
  }
}

}  // namespace

bool TokenStream::is_name(std::string_view name) const {
  return is(TokenKind::kName) && now().text == name;
}

bool TokenStream::is_operator(std::string_view text) const {
  return is(TokenKind::kOperator) && now().text == text;
}

Token TokenStream::take() {
  Token token = now();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenStream::take_name(std::string_view name) {
  const bool found = is_name(name);
  if (found) (void)take();
  return found;
}

bool TokenStream::take_operator(std::string_view text) {
  const bool found = is_operator(text);
  if (found) (void)take();
  return found;
}

void TokenStream::expect_operator(std::string_view text) {
  if (!take_operator(text)) fail_unexpected("'" + std::string(text) + "'");
}

void TokenStream::expect(TokenKind kind) {
  if (!is(kind)) fail_unexpected(described({.kind = kind}));
  (void)take();
}

std::string TokenStream::expect_name(std::string_view what) {
  if (!is(TokenKind::kName)) fail_unexpected(what);
  return take().text;
}

void TokenStream::fail(const std::string& why) const {
  throw SyntaxError("line " + std::to_string(now().line) + ": " + why);
}

void TokenStream::fail_unexpected(std::string_view expected) const {
  fail("expected " + std::string(expected) + ", found " + described(now()));
}

}  // namespace sluice::jinja
