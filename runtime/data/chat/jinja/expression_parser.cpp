#include "runtime/data/chat/jinja/expression_parser.hpp"

#include <algorithm>
#include <charconv>

namespace sluice::jinja {
namespace {

constexpr int kDeepestSyntax = 128;
constexpr int kTallestExpression = 256;

}  // namespace

ExpressionParser::Level::Level(ExpressionParser& parser) : parser_(parser) {
  if (parser.depth_ >= kDeepestSyntax) {
    parser.tokens_.fail("nested more than " + std::to_string(kDeepestSyntax) + " levels deep");
  }
  ++parser.depth_;
}

ExprPtr ExpressionParser::make(ExprKind kind, std::string text) const {
  return std::make_unique<Expr>(Expr{.kind = kind, .text = std::move(text)});
}

void ExpressionParser::grow(Expr& parent, const Expr& kid) {
  parent.height = std::max(parent.height, kid.height + 1);
  if (parent.height > kTallestExpression) {
    tokens_.fail("an expression has more than " + std::to_string(kTallestExpression) +
                 " operators inside each other");
  }
}

void ExpressionParser::adopt(Expr& parent, ExprPtr kid) {
  if (kid != nullptr) grow(parent, *kid);
  parent.kids.push_back(std::move(kid));
}

ExprPtr ExpressionParser::binary(ExprPtr left, std::string op, ExprPtr right) {
  ExprPtr expr = make(ExprKind::kBinary, std::move(op));
  adopt(*expr, std::move(left));
  adopt(*expr, std::move(right));
  return expr;
}

ExprPtr ExpressionParser::expression() {
  const Level level(*this);
  ExprPtr value = either();
  if (!tokens_.take_name("if")) return value;
  ExprPtr choice = make(ExprKind::kIf);
  adopt(*choice, std::move(value));
  adopt(*choice, either());
  adopt(*choice, tokens_.take_name("else") ? expression() : nullptr);
  return choice;
}

ExprPtr ExpressionParser::without_condition() {
  const Level level(*this);
  return either();
}

ExprPtr ExpressionParser::tuple(bool with_condition) {
  const auto one = [&] { return with_condition ? expression() : without_condition(); };
  ExprPtr first = one();
  if (!tokens_.is_operator(",")) return first;
  ExprPtr list = make(ExprKind::kTuple);
  adopt(*list, std::move(first));
  while (tokens_.take_operator(",")) {
    if (tokens_.is(TokenKind::kBlockEnd) || tokens_.is(TokenKind::kOutputEnd) ||
        tokens_.is_operator(")")) {
      break;
    }
    adopt(*list, one());
  }
  return list;
}

ExprPtr ExpressionParser::either() {
  ExprPtr left = both();
  while (tokens_.take_name("or")) {
    ExprPtr expr = make(ExprKind::kOr);
    adopt(*expr, std::move(left));
    adopt(*expr, both());
    left = std::move(expr);
  }
  return left;
}

ExprPtr ExpressionParser::both() {
  ExprPtr left = negation();
  while (tokens_.take_name("and")) {
    ExprPtr expr = make(ExprKind::kAnd);
    adopt(*expr, std::move(left));
    adopt(*expr, negation());
    left = std::move(expr);
  }
  return left;
}

ExprPtr ExpressionParser::negation() {
  if (!tokens_.is_name("not")) return comparison();
  const Level level(*this);
  ExprPtr expr = make(ExprKind::kNot);
  (void)tokens_.take();
  adopt(*expr, negation());
  return expr;
}

ExprPtr ExpressionParser::comparison() {
  ExprPtr left = sum();
  ExprPtr expr;
  for (;;) {
    std::string op;
    for (const std::string_view known : {"==", "!=", "<", ">", "<=", ">="}) {
      if (op.empty() && tokens_.take_operator(known)) op = known;
    }
    if (op.empty() && tokens_.take_name("in")) op = "in";
    if (op.empty() && tokens_.is_name("not") && tokens_.after().kind == TokenKind::kName &&
        tokens_.after().text == "in") {
      (void)tokens_.take();
      (void)tokens_.take();
      op = "not in";
    }
    if (op.empty()) return expr == nullptr ? std::move(left) : std::move(expr);
    if (expr == nullptr) {
      expr = make(ExprKind::kCompare);
      adopt(*expr, std::move(left));
    }
    expr->operators.push_back(std::move(op));
    adopt(*expr, sum());
  }
}

ExprPtr ExpressionParser::sum() {
  ExprPtr left = joined();
  while (tokens_.is_operator("+") || tokens_.is_operator("-")) {
    std::string op = tokens_.take().text;
    left = binary(std::move(left), std::move(op), joined());
  }
  return left;
}

ExprPtr ExpressionParser::joined() {
  ExprPtr left = product();
  while (tokens_.take_operator("~")) left = binary(std::move(left), "~", product());
  return left;
}

ExprPtr ExpressionParser::product() {
  ExprPtr left = unary(true);
  while (tokens_.is_operator("*") || tokens_.is_operator("/") || tokens_.is_operator("//") ||
         tokens_.is_operator("%")) {
    std::string op = tokens_.take().text;
    left = binary(std::move(left), std::move(op), unary(true));
  }
  return left;
}

ExprPtr ExpressionParser::unary(bool with_filters) {
  ExprPtr expr;
  if (tokens_.is_operator("-") || tokens_.is_operator("+")) {
    const Level level(*this);
    expr = make(tokens_.is_operator("-") ? ExprKind::kNegative : ExprKind::kPositive);
    (void)tokens_.take();
    adopt(*expr, unary(false));
  } else {
    expr = primary();
  }
  expr = postfix(std::move(expr));
  return with_filters ? filters(std::move(expr)) : std::move(expr);
}

ExprPtr ExpressionParser::primary() {
  if (tokens_.is(TokenKind::kString)) {
    ExprPtr expr = make(ExprKind::kConstant);
    std::string text;
    while (tokens_.is(TokenKind::kString)) text += tokens_.take().text;
    expr->value = Value::text(std::move(text));
    return expr;
  }
  if (tokens_.is(TokenKind::kInteger) || tokens_.is(TokenKind::kReal)) return number();
  if (tokens_.is_operator("[")) return in_brackets(ExprKind::kList, "]");
  if (tokens_.is_operator("(")) return in_brackets(ExprKind::kTuple, ")");
  if (tokens_.is_operator("{")) return in_brackets(ExprKind::kDict, "}");
  ExprPtr expr = make(ExprKind::kName);
  expr->text = tokens_.expect_name("a value");
  const std::string& name = expr->text;
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    expr->kind = ExprKind::kConstant;
    expr->value = Value::boolean(name[0] == 't' || name[0] == 'T');
  } else if (name == "none" || name == "None") {
    expr->kind = ExprKind::kConstant;
    expr->value = Value::none();
  }
  return expr;
}

ExprPtr ExpressionParser::number() {
  ExprPtr expr = make(ExprKind::kConstant);
  const Token token = tokens_.take();
  const char *begin = token.text.data(), *end = begin + token.text.size();
  std::int64_t integer = 0;
  double real = 0;
  const bool whole = token.kind == TokenKind::kInteger;
  const auto read =
      whole ? std::from_chars(begin, end, integer) : std::from_chars(begin, end, real);
  if (read.ec != std::errc()) tokens_.fail("the number " + token.text + " is too large");
  expr->value = whole ? Value::integer(integer) : Value::real(real);
  return expr;
}

// A list, an object, a tuple, or an expression in parentheses.
ExprPtr ExpressionParser::in_brackets(ExprKind kind, std::string_view end) {
  const Level level(*this);
  ExprPtr expr = make(kind);
  (void)tokens_.take();
  bool comma = true;
  bool any_comma = false;
  while (!tokens_.is_operator(end)) {
    if (!comma) tokens_.fail_unexpected("',' or '" + std::string(end) + "'");
    adopt(*expr, expression());
    if (kind == ExprKind::kDict) {
      tokens_.expect_operator(":");
      adopt(*expr, expression());
    }
    comma = tokens_.take_operator(",");
    any_comma = any_comma || comma;
  }
  (void)tokens_.take();
  if (kind == ExprKind::kTuple && !any_comma && expr->kids.size() == 1) {
    return std::move(expr->kids[0]);
  }
  return expr;
}

ExprPtr ExpressionParser::postfix(ExprPtr expr) {
  for (int links = 0;; ++links) {
    if (links > kDeepestSyntax) tokens_.fail("too many attributes or calls in a row");
    if (tokens_.take_operator(".")) {
      ExprPtr attribute = make(ExprKind::kAttribute);
      adopt(*attribute, std::move(expr));
      if (tokens_.is(TokenKind::kInteger)) {
        attribute->kind = ExprKind::kItem;
        adopt(*attribute, number());
      } else {
        attribute->text = tokens_.expect_name("an attribute's name");
      }
      expr = std::move(attribute);
    } else if (tokens_.is_operator("[")) {
      expr = subscript(std::move(expr));
    } else if (tokens_.is_operator("(")) {
      ExprPtr call = make(ExprKind::kCall);
      adopt(*call, std::move(expr));
      arguments(*call);
      expr = std::move(call);
    } else {
      return expr;
    }
  }
}

ExprPtr ExpressionParser::subscript(ExprPtr expr) {
  ExprPtr item = make(ExprKind::kItem);
  adopt(*item, std::move(expr));
  (void)tokens_.take();
  const auto part = [&]() -> ExprPtr {
    return tokens_.is_operator(":") || tokens_.is_operator("]") ? nullptr : expression();
  };
  adopt(*item, part());
  while (tokens_.take_operator(":")) {
    item->kind = ExprKind::kSlice;
    adopt(*item, part());
  }
  if (item->kids[1] == nullptr && item->kind == ExprKind::kItem)
    tokens_.fail_unexpected("an index");
  if (item->kids.size() > 4) tokens_.fail("a slice has at most three parts");
  tokens_.expect_operator("]");
  if (item->kind == ExprKind::kSlice) item->kids.resize(4);
  return item;
}

// "(a, b, c=d)" to the call's kids and names.
void ExpressionParser::arguments(Expr& call) {
  tokens_.expect_operator("(");
  while (!tokens_.take_operator(")")) {
    if (tokens_.is_operator("*") || tokens_.is_operator("**")) {
      tokens_.fail("'*' before an argument is not supported");
    }
    const bool named = tokens_.is(TokenKind::kName) &&
                       tokens_.after().kind == TokenKind::kOperator && tokens_.after().text == "=";
    if (named) {
      std::string name = tokens_.take().text;
      (void)tokens_.take();
      call.named.emplace_back(std::move(name), expression());
      grow(call, *call.named.back().second);
    } else {
      adopt(call, expression());
    }
    if (!tokens_.is_operator(")")) tokens_.expect_operator(",");
  }
}

ExprPtr ExpressionParser::filter(ExprPtr input) {
  ExprPtr expr = make(ExprKind::kFilter);
  expr->text = tokens_.expect_name("a filter's name");
  adopt(*expr, std::move(input));
  if (tokens_.is_operator("(")) arguments(*expr);
  return expr;
}

ExprPtr ExpressionParser::filters(ExprPtr input) {
  for (int links = 0;; ++links) {
    if (links > kDeepestSyntax) tokens_.fail("too many filters in a row");
    if (tokens_.take_operator("|")) {
      input = filter(std::move(input));
    } else if (tokens_.take_name("is")) {
      input = tested(std::move(input));
    } else if (input != nullptr && tokens_.is_operator("(")) {
      input = postfix(std::move(input));
    } else {
      return input;
    }
  }
}

ExprPtr ExpressionParser::tested(ExprPtr input) {
  const bool negated = tokens_.take_name("not");
  ExprPtr test = make(ExprKind::kTest);
  test->text = tokens_.expect_name("a test's name");
  adopt(*test, std::move(input));
  const bool argument =
      tokens_.is(TokenKind::kString) || tokens_.is(TokenKind::kInteger) ||
      tokens_.is(TokenKind::kReal) || tokens_.is_operator("[") || tokens_.is_operator("{") ||
      (tokens_.is(TokenKind::kName) && !tokens_.is_name("else") && !tokens_.is_name("or") &&
       !tokens_.is_name("and") && !tokens_.is_name("if") && !tokens_.is_name("is"));
  if (tokens_.is_operator("(")) {
    arguments(*test);
  } else if (argument) {
    adopt(*test, postfix(primary()));
  }
  if (!negated) return test;
  ExprPtr expr = make(ExprKind::kNot);
  adopt(*expr, std::move(test));
  return expr;
}

}  // namespace sluice::jinja
