#include "runtime/data/chat/jinja/evaluator.hpp"

#include <algorithm>

namespace sluice::jinja {

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer) {
    for (const auto& [held, value] : scope->names) {
      if (held == name) return &value;
    }
  }
  return nullptr;
}

void Scope::set(const std::string& name, Value value) {
  for (auto& [held, old] : names) {
    if (held != name) continue;
    old = std::move(value);
    return;
  }
  names.emplace_back(name, std::move(value));
}

Value Evaluator::value_of(const Expr& expr, const Scope& scope) {
  const Budget::Level level(budget_);
  budget_.charge();
  return dispatch(expr, scope);
}

Value Evaluator::filtered(const Expr& expr, const Scope& scope, const Value& input) {
  const Value* outer = std::exchange(missing_input_, &input);
  Value result = value_of(expr, scope);
  missing_input_ = outer;
  return result;
}

Value Evaluator::dispatch(const Expr& expr, const Scope& scope) {
  const auto kid = [&](std::size_t i) { return value_of(*expr.kids[i], scope); };
  switch (expr.kind) {
    case ExprKind::kConstant:
      return expr.value;
    case ExprKind::kName: {
      const Value* found = scope.find(expr.text);
      return found != nullptr ? *found : Value::undefined(expr.text);
    }
    case ExprKind::kList:
    case ExprKind::kTuple:
    case ExprKind::kDict:
      return container(expr, scope);
    case ExprKind::kAttribute:
      return attribute_of(kid(0), expr.text, budget_);
    case ExprKind::kItem: {
      const Value input = kid(0);
      return item_of(input, kid(1), budget_);
    }
    case ExprKind::kSlice:
      return sliced(expr, scope);
    case ExprKind::kCall: {
      const Value function = kid(0);
      return call(function, arguments_of(expr, scope));
    }
    case ExprKind::kFilter: {
      const Value input = expr.kids[0] != nullptr ? kid(0) : *missing_input_;
      return apply_filter(expr.text, input, arguments_of(expr, scope), budget_);
    }
    case ExprKind::kTest: {
      const Value input = kid(0);
      return Value::boolean(apply_test(expr.text, input, arguments_of(expr, scope), budget_));
    }
    case ExprKind::kNot:
      return Value::boolean(!is_true(kid(0)));
    case ExprKind::kNegative:
    case ExprKind::kPositive:
      return signed_value(expr, scope);
    case ExprKind::kAnd: {
      Value left = kid(0);
      return is_true(left) ? kid(1) : left;
    }
    case ExprKind::kOr: {
      Value left = kid(0);
      return is_true(left) ? left : kid(1);
    }
    case ExprKind::kIf:
      if (is_true(kid(1))) return kid(0);
      return expr.kids[2] != nullptr ? kid(2) : Value::undefined("the missing else");
    case ExprKind::kBinary: {
      const Value left = kid(0);
      return binary(expr.text, left, kid(1), budget_);
    }
    case ExprKind::kCompare:
      return compared(expr, scope);
  }
  return Value();
}

Value Evaluator::container(const Expr& expr, const Scope& scope) {
  std::vector<Value> values;
  for (const ExprPtr& kid : expr.kids) values.push_back(value_of(*kid, scope));
  if (expr.kind != ExprKind::kDict) {
    return Value::list(std::move(values), expr.kind == ExprKind::kTuple);
  }
  Dict dict;
  for (std::size_t i = 0; i < values.size(); i += 2) {
    if (!values[i].is_text()) {
      throw RenderError("a key of an object must be a string, not " + values[i].kind());
    }
    dict.set(*values[i].as_text(), values[i + 1]);
  }
  return Value::dict(std::move(dict));
}

Value Evaluator::sliced(const Expr& expr, const Scope& scope) {
  const auto place = [&](std::size_t i) -> std::optional<std::int64_t> {
    if (expr.kids[i] == nullptr) return std::nullopt;
    const Value value = value_of(*expr.kids[i], scope);
    if (value.is_none()) return std::nullopt;
    return integer_of(value, "a slice's place");
  };
  const Value input = value_of(*expr.kids[0], scope);
  return slice(input, place(1), place(2), place(3).value_or(1), budget_);
}

bool Evaluator::holds(const std::string& op, const Value& left, const Value& right) {
  const bool in = op == "in" || op == "not in";
  budget_.charge(in ? right.weight() : std::min(left.weight(), right.weight()));
  if (in) return contains(right, left) == (op == "in");
  if (op == "==" || op == "!=") return equal(left, right) == (op == "==");
  if (op == "<" || op == ">=") return less(left, right) == (op == "<");
  return less(right, left) == (op == ">");
}

Value Evaluator::compared(const Expr& expr, const Scope& scope) {
  Value left = value_of(*expr.kids[0], scope);
  for (std::size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = value_of(*expr.kids[i + 1], scope);
    if (!holds(expr.operators[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Evaluator::signed_value(const Expr& expr, const Scope& scope) {
  const Value value = value_of(*expr.kids[0], scope);
  if (expr.kind == ExprKind::kPositive) return binary("+", Value::integer(0), value, budget_);
  if (value.as_real() != nullptr) return Value::real(-number_of(value));
  return binary("-", Value::integer(0), value, budget_);
}

Value Evaluator::call(const Value& function, const Arguments& arguments) {
  const Callable* callable = function.as_callable();
  if (callable == nullptr) throw RenderError(function.kind() + " cannot be called");
  return callable->call(arguments);
}

Arguments Evaluator::arguments_of(const Expr& expr, const Scope& scope) {
  Arguments arguments;
  for (std::size_t i = 1; i < expr.kids.size(); ++i) {
    arguments.values.push_back(value_of(*expr.kids[i], scope));
  }
  for (const auto& [name, kid] : expr.named) {
    arguments.named.emplace_back(name, value_of(*kid, scope));
  }
  return arguments;
}

}  // namespace sluice::jinja
