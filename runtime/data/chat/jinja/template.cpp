#include "runtime/data/chat/jinja/template.hpp"

#include <algorithm>

#include "runtime/data/chat/jinja/evaluator.hpp"
#include "runtime/data/chat/jinja/strings.hpp"

namespace sluice::jinja {
namespace {

enum class Flow { kNext, kBreak, kContinue };

class Renderer {
 public:
  explicit Renderer(const RenderOptions& options)
      : options_(options), budget_(options.steps), evaluator_(budget_) {}

  Rendered run(const Syntax& syntax, const Dict& variables) {
    Scope globals{.names = functions(options_.now, budget_)};
    Scope scope{.outer = &globals, .names = variables.items()};
    (void)run_all(syntax.body, scope);
    return std::move(result_);
  }
  [[nodiscard]] int line() const { return line_; }

 private:
  Flow run_all(const std::vector<Stmt>& body, Scope& scope) {
    const Budget::Level level(budget_);
    for (const Stmt& stmt : body) {
      budget_.charge();
      line_ = stmt.line;
      const Flow flow = run_one(stmt, scope);
      if (flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }

  Flow run_one(const Stmt& stmt, Scope& scope) {
    switch (stmt.kind) {
      case StmtKind::kText:
        write(stmt.text);
        return Flow::kNext;
      case StmtKind::kOutput:
        write(to_written(evaluator_.value_of(*stmt.expr, scope)));
        return Flow::kNext;
      case StmtKind::kIf:
        return run_all(is_true(evaluator_.value_of(*stmt.expr, scope)) ? stmt.body : stmt.other,
                       scope);
      case StmtKind::kFor:
        return run_for(stmt, scope);
      case StmtKind::kSet:
        assign(stmt.names, evaluator_.value_of(*stmt.expr, scope), scope);
        return Flow::kNext;
      case StmtKind::kSetField:
        set_field(stmt, scope);
        return Flow::kNext;
      case StmtKind::kSetBlock:
        scope.set(stmt.names[0], filtered(stmt, scope));
        return Flow::kNext;
      case StmtKind::kFilter:
        write(to_written(filtered(stmt, scope)));
        return Flow::kNext;
      case StmtKind::kMacro:
        scope.set(stmt.text, macro(stmt, scope));
        return Flow::kNext;
      case StmtKind::kCallBlock:
        run_call_block(stmt, scope);
        return Flow::kNext;
      case StmtKind::kGeneration:
        run_generation(stmt, scope);
        return Flow::kNext;
      case StmtKind::kWith:
        return run_with(stmt, scope);
      case StmtKind::kBreak:
        return Flow::kBreak;
      case StmtKind::kContinue:
        return Flow::kContinue;
    }
    return Flow::kNext;
  }

  std::string to_written(const Value& value) {
    budget_.charge(value.weight());
    return to_text(value);
  }

  void write(const std::string& text) {
    std::string& out = capture_ != nullptr ? *capture_ : result_.text;
    budget_.charge(static_cast<std::int64_t>(text.size()));
    if (out.size() + text.size() > options_.longest_bytes) {
      throw RenderError("the rendered text is longer than " +
                        std::to_string(options_.longest_bytes) + " bytes");
    }
    out += text;
  }

  // The text that `body` writes, in a scope of its own.
  std::string captured(const std::vector<Stmt>& body, Scope& scope) {
    std::string text;
    std::string* outer = std::exchange(capture_, &text);
    (void)run_all(body, scope);
    capture_ = outer;
    return text;
  }

  Value filtered(const Stmt& stmt, Scope& scope) {
    Scope inner{.outer = &scope};
    Value text = Value::text(captured(stmt.body, inner));
    return stmt.expr != nullptr ? evaluator_.filtered(*stmt.expr, scope, text) : text;
  }

  // As transformers: a span begins where the outermost text ends at that time.
  void run_generation(const Stmt& stmt, Scope& scope) {
    Scope inner{.outer = &scope};
    const std::string text = captured(stmt.body, inner);
    const std::size_t begin = result_.text.size();
    result_.generated.push_back({begin, begin + text.size()});
    write(text);
  }

  static void assign(const std::vector<std::string>& names, const Value& value, Scope& scope) {
    if (names.size() == 1) return scope.set(names[0], value);
    const std::vector<Value> parts = elements_of(value);
    if (parts.size() != names.size()) {
      throw RenderError("cannot assign " + std::to_string(parts.size()) + " values to " +
                        std::to_string(names.size()) + " variables");
    }
    for (std::size_t i = 0; i < names.size(); ++i) scope.set(names[i], parts[i]);
  }

  void set_field(const Stmt& stmt, Scope& scope) {
    const Value* target = scope.find(stmt.names[0]);
    Namespace* space = target != nullptr ? target->as_space() : nullptr;
    if (space == nullptr) {
      throw RenderError("'" + stmt.names[0] + "' is not a namespace, so it takes no attribute");
    }
    Value value = evaluator_.value_of(*stmt.expr, scope);
    (void)Value::list({value});  // may be held
    space->attributes.set(stmt.text, std::move(value));
  }

  Flow run_with(const Stmt& stmt, Scope& scope) {
    Scope inner{.outer = &scope};
    for (std::size_t i = 0; i < stmt.names.size(); ++i) {
      inner.set(stmt.names[i], evaluator_.value_of(*stmt.defaults[i], scope));
    }
    return run_all(stmt.body, inner);
  }

  std::vector<Value> loop_items(const Stmt& stmt, Scope& scope) {
    std::vector<Value> items = elements_of(evaluator_.value_of(*stmt.expr, scope));
    if (stmt.filter == nullptr) return items;
    std::vector<Value> chosen;
    for (Value& item : items) {
      Scope inner{.outer = &scope};
      assign(stmt.names, item, inner);
      if (is_true(evaluator_.value_of(*stmt.filter, inner))) chosen.push_back(std::move(item));
    }
    return chosen;
  }

  Flow run_for(const Stmt& stmt, Scope& scope) {
    const std::vector<Value> items = loop_items(stmt, scope);
    const Value* around = scope.find("loop");
    const Loop* outer = around != nullptr ? around->as_loop() : nullptr;
    const auto loop = std::make_shared<Loop>();
    loop->items = &items;
    loop->depth = outer != nullptr ? outer->depth + 1 : 1;
    for (; loop->index < items.size(); ++loop->index) {
      budget_.charge();
      Scope turn{.outer = &scope};
      turn.set("loop", Value::loop(loop));
      assign(stmt.names, items[loop->index], turn);
      if (run_all(stmt.body, turn) == Flow::kBreak) break;
    }
    return items.empty() ? run_all(stmt.other, scope) : Flow::kNext;
  }

  // Called while `scope` lives: no value holds a function beyond its scope.
  Value macro(const Stmt& stmt, Scope& scope) {
    return Value::callable({[this, &stmt, &scope](const Arguments& arguments) {
      return call_macro(stmt, scope, arguments);
    }});
  }

  Value call_macro(const Stmt& stmt, Scope& scope, const Arguments& arguments) {
    Scope inner{.outer = &scope};
    if (arguments.values.size() > stmt.names.size()) {
      throw RenderError("the macro '" + stmt.text + "' takes " + std::to_string(stmt.names.size()) +
                        " arguments at most");
    }
    for (std::size_t i = 0; i < arguments.values.size(); ++i) {
      inner.set(stmt.names[i], arguments.values[i]);
    }
    for (const auto& [name, value] : arguments.named) {
      if (name != "caller" &&
          std::find(stmt.names.begin(), stmt.names.end(), name) == stmt.names.end()) {
        throw RenderError("the macro '" + stmt.text + "' has no argument '" + name + "'");
      }
      inner.set(name, value);
    }
    const std::size_t first = stmt.names.size() - stmt.defaults.size();
    for (std::size_t i = 0; i < stmt.names.size(); ++i) {
      const auto given = [&](const Dict::Item& item) { return item.first == stmt.names[i]; };
      if (std::any_of(inner.names.begin(), inner.names.end(), given)) continue;
      inner.set(stmt.names[i], i < first ? Value::undefined(stmt.names[i])
                                         : evaluator_.value_of(*stmt.defaults[i - first], inner));
    }
    return Value::text(captured(stmt.body, inner));
  }

  void run_call_block(const Stmt& stmt, Scope& scope) {
    const Value function = evaluator_.value_of(*stmt.expr->kids[0], scope);
    Arguments arguments = evaluator_.arguments_of(*stmt.expr, scope);
    arguments.named.emplace_back("caller", macro(stmt, scope));
    write(to_written(evaluator_.call(function, arguments)));
  }

  const RenderOptions& options_;
  Budget budget_;
  Evaluator evaluator_;
  Rendered result_;
  std::string* capture_ = nullptr;
  int line_ = 0;  // of the last statement that began
};

}  // namespace

Template::Template(const std::string& source)
    : syntax_(std::make_unique<const Syntax>(parse(source))) {}
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

bool Template::has_generation() const { return syntax_->has_generation; }

Rendered Template::render(const Dict& variables, const RenderOptions& options) const {
  Renderer renderer(options);
  try {
    return renderer.run(*syntax_, variables);
  } catch (const RaisedError&) {
    throw;
  } catch (const RenderError& error) {
    throw RenderError("template line " + std::to_string(renderer.line()) + ": " + error.what());
  }
}

}  // namespace sluice::jinja
