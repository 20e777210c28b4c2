// Values of a template: what JSON holds, and the objects of the language. Values are immutable, but
// for the attributes of a namespace. A container knows its depth, so a recursion over a value is
// bounded. Not thread-safe: a value belongs to one rendering at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.hpp"

namespace sluice::jinja {

inline constexpr int kDeepestValue = 128;  // lists and objects inside each other
inline constexpr std::int64_t kHeaviestValue = std::int64_t{1} << 28U;

// A template that cannot be rendered with these values.
class RenderError : public Error {
 public:
  using Error::Error;
  [[nodiscard]] int exit_code() const override { return 4; }
  [[nodiscard]] bool recurs() const override { return true; }
};

// The template's own complaint (raise_exception): "Conversation roles must alternate".
class RaisedError : public RenderError {
 public:
  using RenderError::RenderError;
};

class Value;
struct List;
class Dict;
struct Namespace;
struct Loop;
struct Callable;

class Value {
 public:
  struct Undefined {
    std::shared_ptr<const std::string> name;  // for messages; may be null
  };
  struct None {};

  Value() = default;  // undefined
  static Value undefined(std::string name);
  static Value none() { return Value(Data(None{})); }
  static Value boolean(bool value) { return Value(Data(value)); }
  static Value integer(std::int64_t value) { return Value(Data(value)); }
  static Value real(double value) { return Value(Data(value)); }
  static Value text(std::string value);
  // Throws RenderError if the container would be deeper than kDeepestValue or heavier than
  // kHeaviestValue, or would hold a namespace or a function: the object could outlive its scope.
  static Value list(std::vector<Value> items, bool tuple = false);
  static Value dict(Dict items);
  static Value space(std::shared_ptr<Namespace> space) { return Value(Data(std::move(space))); }
  static Value loop(std::shared_ptr<Loop> loop) { return Value(Data(std::move(loop))); }
  static Value callable(Callable callable);

  [[nodiscard]] bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  [[nodiscard]] bool is_none() const { return std::holds_alternative<None>(data_); }
  [[nodiscard]] bool is_text() const {
    return get<std::shared_ptr<const std::string>>() != nullptr;
  }
  // Null, or the value if it is of that type.
  [[nodiscard]] const bool* as_bool() const { return get<bool>(); }
  [[nodiscard]] const std::int64_t* as_integer() const { return get<std::int64_t>(); }
  [[nodiscard]] const double* as_real() const { return get<double>(); }
  [[nodiscard]] const std::string* as_text() const { return of<const std::string>(); }
  [[nodiscard]] const List* as_list() const { return of<const List>(); }
  [[nodiscard]] const Dict* as_dict() const { return of<const Dict>(); }
  [[nodiscard]] Namespace* as_space() const { return of<Namespace>(); }
  [[nodiscard]] const Loop* as_loop() const { return of<Loop>(); }
  [[nodiscard]] const Callable* as_callable() const { return of<const Callable>(); }
  // The name that an undefined value was looked up by.
  [[nodiscard]] std::string undefined_name() const;
  // "a string", "a list": for messages.
  [[nodiscard]] std::string kind() const;
  [[nodiscard]] int depth() const;
  // Bytes of a string; elements of a container and their weights, shared ones counted each time.
  [[nodiscard]] std::int64_t weight() const;
  // Bytes of a string, elements of a container.
  [[nodiscard]] std::int64_t width() const;

 private:
  using Data = std::variant<Undefined, None, bool, std::int64_t, double,
                            std::shared_ptr<const std::string>, std::shared_ptr<const List>,
                            std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
                            std::shared_ptr<Loop>, std::shared_ptr<const Callable>>;
  explicit Value(Data data) : data_(std::move(data)) {}
  template <typename T>
  [[nodiscard]] const T* get() const {
    return std::get_if<T>(&data_);
  }
  template <typename T>
  [[nodiscard]] T* of() const {
    const auto* held = get<std::shared_ptr<T>>();
    return held == nullptr ? nullptr : held->get();
  }
  Data data_;
};

struct List {
  std::vector<Value> items;
  bool tuple = false;
  int depth = 1;
  std::int64_t weight = 0;
};

// Keys in the order of their first assignment.
class Dict {
 public:
  using Item = std::pair<std::string, Value>;
  [[nodiscard]] const std::vector<Item>& items() const { return items_; }
  [[nodiscard]] const Value* find(std::string_view key) const;  // null: no such key
  void set(std::string key, Value value);
  int depth = 1;            // set by Value::dict
  std::int64_t weight = 0;  // set by Value::dict

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view key) const {
      return std::hash<std::string_view>()(key);
    }
  };
  std::vector<Item> items_;
  std::unordered_map<std::string, std::size_t, Hash, std::equal_to<>> places_;  // of many items
};

struct Namespace {
  Dict attributes;
};

// The variable `loop`.
struct Loop {
  const std::vector<Value>* items = nullptr;
  std::size_t index = 0;
  std::int64_t depth = 1;
};

// Arguments of a call.
struct Arguments {
  std::vector<Value> values;
  std::vector<Dict::Item> named;
};

struct Callable {
  std::function<Value(const Arguments&)> call;
};

[[nodiscard]] bool is_true(const Value& value);
// Throws RenderError for values without an order.
[[nodiscard]] bool equal(const Value& left, const Value& right);
[[nodiscard]] bool less(const Value& left, const Value& right);
// `needle in haystack`.
[[nodiscard]] bool contains(const Value& haystack, const Value& needle);
// Elements of a list, keys of an object, characters of a string; none of an undefined value.
[[nodiscard]] std::vector<Value> elements_of(const Value& value);
// A number (true counts as 1) as double; throws RenderError for another value.
[[nodiscard]] double number_of(const Value& value);
[[nodiscard]] bool is_number(const Value& value);
// An integer or a truth value; throws RenderError with `what` for another value.
[[nodiscard]] std::int64_t integer_of(const Value& value, std::string_view what);

}  // namespace sluice::jinja
