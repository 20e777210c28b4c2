// Expressions of a template, from tokens. Used by the parser of statements only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/chat/jinja/lexer.hpp"
#include "runtime/data/chat/jinja/syntax.hpp"

namespace sluice::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  [[nodiscard]] const Token& now() const { return tokens_[at_]; }
  [[nodiscard]] const Token& after() const { return tokens_[at_ + (at_ + 1 < tokens_.size())]; }
  [[nodiscard]] bool is(TokenKind kind) const { return now().kind == kind; }
  [[nodiscard]] bool is_name(std::string_view name) const;
  [[nodiscard]] bool is_operator(std::string_view text) const;
  Token take();  // the last token is never passed
  bool take_name(std::string_view name);
  bool take_operator(std::string_view text);
  void expect_operator(std::string_view text);
  void expect(TokenKind kind);
  std::string expect_name(std::string_view what);
  [[noreturn]] void fail(const std::string& why) const;
  [[noreturn]] void fail_unexpected(std::string_view expected) const;

 private:
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}
  ExprPtr expression();         // with "a if b else c"
  ExprPtr without_condition();  // as the values of a `for`
  // Expressions with commas between make a tuple.
  ExprPtr tuple(bool with_condition);
  // "| f | g(1)" on `input`, which may be null.
  ExprPtr filters(ExprPtr input);
  // A filter's name and arguments, behind the bar or a block's `filter`.
  ExprPtr filter(ExprPtr input);
  ExprPtr postfix(ExprPtr expr);
  ExprPtr primary();
  // Counts the nesting of expressions and statements. Throws SyntaxError if too deep.
  class Level {
   public:
    explicit Level(ExpressionParser& parser);
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

 private:
  ExprPtr either();
  ExprPtr both();
  ExprPtr negation();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr joined();
  ExprPtr product();
  ExprPtr unary(bool with_filters);
  ExprPtr tested(ExprPtr expr);
  ExprPtr subscript(ExprPtr expr);
  ExprPtr in_brackets(ExprKind kind, std::string_view end);
  ExprPtr number();
  ExprPtr binary(ExprPtr left, std::string op, ExprPtr right);
  void arguments(Expr& call);
  // Makes `kid` (may be null) the last of the kids. Throws SyntaxError if the tree is too tall.
  void adopt(Expr& parent, ExprPtr kid);
  void grow(Expr& parent, const Expr& kid);
  [[nodiscard]] ExprPtr make(ExprKind kind, std::string text = "") const;

  TokenStream& tokens_;
  int depth_ = 0;
};

}  // namespace sluice::jinja
