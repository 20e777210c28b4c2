// The statements of a template.
#include <algorithm>
#include <initializer_list>

#include "runtime/data/chat/jinja/expression_parser.hpp"

namespace sluice::jinja {
namespace {

using Ends = std::initializer_list<std::string_view>;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)), expr_(tokens_) {}

  Syntax run() {
    Syntax syntax;
    syntax.body = statements({});
    syntax.has_generation = has_generation_;
    return syntax;
  }

 private:
  // Up to a block whose name is of `ends`; that name is the next token. None: up to the end.
  std::vector<Stmt> statements(Ends ends) {
    const ExpressionParser::Level level(expr_);
    std::vector<Stmt> body;
    while (!tokens_.is(TokenKind::kEnd)) {
      const int line = tokens_.now().line;
      if (tokens_.is(TokenKind::kText)) {
        body.push_back({.kind = StmtKind::kText, .line = line, .text = tokens_.take().text});
      } else if (tokens_.is(TokenKind::kOutputBegin)) {
        (void)tokens_.take();
        body.push_back({.kind = StmtKind::kOutput, .line = line, .expr = expr_.tuple(true)});
        tokens_.expect(TokenKind::kOutputEnd);
      } else {
        tokens_.expect(TokenKind::kBlockBegin);
        if (std::any_of(ends.begin(), ends.end(), [&](auto end) { return tokens_.is_name(end); })) {
          return body;
        }
        body.push_back(block());
        body.back().line = line;
      }
    }
    if (ends.size() > 0) tokens_.fail_unexpected("'{% " + std::string(*(ends.end() - 1)) + " %}'");
    return body;
  }

  void end_block() { tokens_.expect(TokenKind::kBlockEnd); }
  std::vector<Stmt> body_until(std::string_view end) {
    end_block();
    std::vector<Stmt> body = statements({end});
    (void)tokens_.take();
    if (end == "endmacro" && tokens_.is(TokenKind::kName)) (void)tokens_.take();
    end_block();
    return body;
  }

  Stmt block() {
    const std::string name = tokens_.expect_name("a statement's name");
    if (name == "if") return if_block();
    if (name == "for") return for_block();
    if (name == "set") return set_block();
    if (name == "macro") return macro_block();
    if (name == "call") return call_block();
    if (name == "filter") return filter_block();
    if (name == "with") return with_block();
    if (name == "generation") {
      has_generation_ = true;
      return {.kind = StmtKind::kGeneration, .body = body_until("endgeneration")};
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) tokens_.fail("'" + name + "' outside of a loop");
      end_block();
      return {.kind = name == "break" ? StmtKind::kBreak : StmtKind::kContinue};
    }
    tokens_.fail("the statement '" + name + "' is unknown or not supported");
  }

  Stmt if_block() {
    const ExpressionParser::Level level(expr_);
    Stmt stmt{.kind = StmtKind::kIf, .line = tokens_.now().line, .expr = expr_.tuple(true)};
    end_block();
    stmt.body = statements({"elif", "else", "endif"});
    if (tokens_.take_name("elif")) {
      stmt.other.push_back(if_block());  // the inner `if` takes the endif
      return stmt;
    }
    if (tokens_.take_name("else")) {
      end_block();
      stmt.other = statements({"endif"});
    }
    (void)tokens_.take();
    end_block();
    return stmt;
  }

  std::vector<std::string> targets() {
    std::vector<std::string> names;
    const bool brackets = tokens_.take_operator("(");
    do {
      if (!names.empty() && tokens_.is_name("in")) break;
      names.push_back(tokens_.expect_name("a variable's name"));
    } while (tokens_.take_operator(","));
    if (brackets) tokens_.expect_operator(")");
    return names;
  }

  Stmt for_block() {
    Stmt stmt{.kind = StmtKind::kFor, .names = targets()};
    if (!tokens_.take_name("in")) tokens_.fail_unexpected("'in'");
    stmt.expr = expr_.tuple(false);
    if (tokens_.take_name("if")) stmt.filter = expr_.expression();
    if (tokens_.is_name("recursive")) tokens_.fail("a recursive loop is not supported");
    end_block();
    ++loops_;
    stmt.body = statements({"else", "endfor"});
    --loops_;
    if (tokens_.take_name("else")) {
      end_block();
      stmt.other = statements({"endfor"});
    }
    (void)tokens_.take();
    end_block();
    return stmt;
  }

  Stmt set_block() {
    Stmt stmt{.kind = StmtKind::kSet, .names = targets()};
    if (tokens_.take_operator(".")) {
      stmt.kind = StmtKind::kSetField;
      stmt.text = tokens_.expect_name("an attribute's name");
    }
    if (tokens_.take_operator("=")) {
      stmt.expr = expr_.tuple(true);
      end_block();
      return stmt;
    }
    if (stmt.kind != StmtKind::kSet || stmt.names.size() != 1) tokens_.fail_unexpected("'='");
    stmt.kind = StmtKind::kSetBlock;
    if (tokens_.is_operator("|")) stmt.expr = expr_.filters(nullptr);
    stmt.body = body_until("endset");
    return stmt;
  }

  void parameters(Stmt& stmt) {
    tokens_.expect_operator("(");
    while (!tokens_.take_operator(")")) {
      stmt.names.push_back(tokens_.expect_name("a parameter's name"));
      if (tokens_.take_operator("=")) {
        stmt.defaults.push_back(expr_.expression());
      } else if (!stmt.defaults.empty()) {
        tokens_.fail("a parameter without a default follows one with a default");
      }
      if (!tokens_.is_operator(")")) tokens_.expect_operator(",");
    }
  }

  // A body that is called: no loop of its surroundings can be left from there.
  std::vector<Stmt> apart(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    std::vector<Stmt> body = body_until(end);
    loops_ = loops;
    return body;
  }

  Stmt macro_block() {
    Stmt stmt{.kind = StmtKind::kMacro, .text = tokens_.expect_name("a macro's name")};
    parameters(stmt);
    stmt.body = apart("endmacro");
    return stmt;
  }

  Stmt call_block() {
    Stmt stmt{.kind = StmtKind::kCallBlock, .text = "caller"};
    if (tokens_.is_operator("(")) parameters(stmt);
    stmt.expr = expr_.expression();
    if (stmt.expr->kind != ExprKind::kCall) tokens_.fail("'call' expects a call");
    stmt.body = apart("endcall");
    return stmt;
  }

  Stmt filter_block() {
    Stmt stmt{.kind = StmtKind::kFilter, .expr = expr_.filters(expr_.filter(nullptr))};
    stmt.body = body_until("endfilter");
    return stmt;
  }

  Stmt with_block() {
    Stmt stmt{.kind = StmtKind::kWith};
    while (!tokens_.is(TokenKind::kBlockEnd)) {
      if (!stmt.names.empty()) tokens_.expect_operator(",");
      stmt.names.push_back(tokens_.expect_name("a variable's name"));
      tokens_.expect_operator("=");
      stmt.defaults.push_back(expr_.expression());
    }
    stmt.body = body_until("endwith");
    return stmt;
  }

  TokenStream tokens_;
  ExpressionParser expr_;
  int loops_ = 0;
  bool has_generation_ = false;
};

}  // namespace

Syntax parse(const std::string& source) { return Parser(tokenize(source)).run(); }

}  // namespace sluice::jinja
