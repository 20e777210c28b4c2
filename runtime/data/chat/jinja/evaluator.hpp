// Values of expressions. Used by the renderer only.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/data/chat/jinja/builtins.hpp"
#include "runtime/data/chat/jinja/syntax.hpp"

namespace sluice::jinja {

// Variables of a template, a loop's turn, or a macro's call. Lives on the stack: no value that
// refers to a scope outlives the scope.
struct Scope {
  const Scope* outer = nullptr;
  std::vector<Dict::Item> names{};

  [[nodiscard]] const Value* find(std::string_view name) const;
  void set(const std::string& name, Value value);
};

class Evaluator {
 public:
  explicit Evaluator(Budget& budget) : budget_(budget) {}
  [[nodiscard]] Value value_of(const Expr& expr, const Scope& scope);
  // The same for a chain of filters whose innermost input is missing.
  [[nodiscard]] Value filtered(const Expr& expr, const Scope& scope, const Value& input);
  [[nodiscard]] Value call(const Value& function, const Arguments& arguments);
  [[nodiscard]] Arguments arguments_of(const Expr& expr, const Scope& scope);

 private:
  [[nodiscard]] Value dispatch(const Expr& expr, const Scope& scope);
  [[nodiscard]] Value container(const Expr& expr, const Scope& scope);
  [[nodiscard]] Value sliced(const Expr& expr, const Scope& scope);
  [[nodiscard]] Value compared(const Expr& expr, const Scope& scope);
  [[nodiscard]] Value signed_value(const Expr& expr, const Scope& scope);
  [[nodiscard]] bool holds(const std::string& op, const Value& left, const Value& right);

  Budget& budget_;
  const Value* missing_input_ = nullptr;  // of filtered()
};

}  // namespace sluice::jinja
