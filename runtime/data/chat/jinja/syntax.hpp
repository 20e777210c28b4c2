// The syntax tree of a template. Immutable after parsing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/chat/jinja/value.hpp"

namespace sluice::jinja {

// A template that does not parse; the message names the line.
class SyntaxError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

enum class ExprKind : std::uint8_t {
  kConstant,   // value
  kName,       // text
  kList,       // kids
  kTuple,      // kids
  kDict,       // kids: key, value, key, value ...
  kAttribute,  // kids[0].text
  kItem,       // kids[0][kids[1]]
  kSlice,      // kids[0][kids[1]:kids[2]:kids[3]]; null: left out
  kCall,       // kids[0](kids[1...], named)
  kFilter,     // kids[0] | text(kids[1...], named); a null kids[0] is the block's text
  kTest,       // kids[0] is text(kids[1...])
  kNot,
  kNegative,
  kPositive,
  kAnd,
  kOr,
  kIf,       // kids[0] if kids[1] else kids[2], which may be null
  kBinary,   // kids[0] text kids[1], of + - * / // % ~
  kCompare,  // kids[0] operators[0] kids[1] operators[1] kids[2] ...
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  ExprKind kind = ExprKind::kConstant;
  std::string text{};
  int height = 1;  // of the tree below
  Value value{};
  std::vector<ExprPtr> kids{};
  std::vector<std::pair<std::string, ExprPtr>> named{};
  std::vector<std::string> operators{};
};

enum class StmtKind : std::uint8_t {
  kText,        // text
  kOutput,      // expr
  kIf,          // expr, body, other
  kFor,         // names in expr if filter: body; other: nothing was iterated
  kSet,         // names = expr
  kSetField,    // names[0].text = expr
  kSetBlock,    // names[0] = the body's text through expr's filters, if any
  kMacro,       // text(names; defaults): body
  kCallBlock,   // expr(...) with caller = a macro of names, defaults, body
  kFilter,      // expr's filters over the body's text
  kGeneration,  // body, whose text the assistant wrote
  kWith,        // names = exprs of defaults: body
  kBreak,
  kContinue,
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  int line = 0;
  std::string text{};
  std::vector<std::string> names{};
  std::vector<ExprPtr> defaults{};  // of the last names
  ExprPtr expr{}, filter{};
  std::vector<Stmt> body{}, other{};
};

struct Syntax {
  std::vector<Stmt> body;
  bool has_generation = false;
};

// Parses as jinja2 does with trim_blocks and lstrip_blocks. Throws SyntaxError.
[[nodiscard]] Syntax parse(const std::string& source);

}  // namespace sluice::jinja
