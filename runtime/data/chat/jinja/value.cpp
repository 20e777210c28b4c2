#include "runtime/data/chat/jinja/value.hpp"

#include <algorithm>

#include "runtime/data/chat/jinja/strings.hpp"

namespace sluice::jinja {
namespace {

constexpr std::size_t kFewItems = 8;  // of an object that is searched in order

int depth_over(int inner, std::string_view what) {
  if (inner + 1 > kDeepestValue) {
    throw RenderError(std::string(what) + " would be nested more than " +
                      std::to_string(kDeepestValue) + " levels deep");
  }
  return inner + 1;
}

std::int64_t heavier(std::int64_t weight, const Value& item) {
  weight += 1 + item.weight();
  if (weight > kHeaviestValue) throw RenderError("a list or an object would be too large");
  return weight;
}

void check_element(const Value& value) {
  if (value.as_space() != nullptr || value.as_loop() != nullptr || value.as_callable() != nullptr) {
    throw RenderError("a list, an object or a namespace cannot hold " + value.kind());
  }
}

[[noreturn]] void throw_not_a_number(const Value& value) {
  throw RenderError("expected a number, found " + value.kind());
}

}  // namespace

Value Value::undefined(std::string name) {
  return Value(Data(Undefined{std::make_shared<const std::string>(std::move(name))}));
}

Value Value::text(std::string value) {
  return Value(Data(std::make_shared<const std::string>(std::move(value))));
}

Value Value::list(std::vector<Value> items, bool tuple) {
  int inner = 0;
  std::int64_t weight = 0;
  for (const Value& item : items) {
    check_element(item);
    inner = std::max(inner, item.depth());
    weight = heavier(weight, item);
  }
  return Value(Data(std::make_shared<const List>(
      List{std::move(items), tuple, depth_over(inner, "a list"), weight})));
}

Value Value::dict(Dict items) {
  int inner = 0;
  items.weight = 0;
  for (const auto& [key, item] : items.items()) {
    check_element(item);
    inner = std::max(inner, item.depth());
    items.weight = heavier(items.weight + static_cast<std::int64_t>(key.size()), item);
  }
  items.depth = depth_over(inner, "an object");
  return Value(Data(std::make_shared<const Dict>(std::move(items))));
}

Value Value::callable(Callable callable) {
  return Value(Data(std::make_shared<const Callable>(std::move(callable))));
}

std::string Value::undefined_name() const {
  const auto* held = get<Undefined>();
  return held == nullptr || held->name == nullptr ? "" : *held->name;
}

std::string Value::kind() const {
  static constexpr const char* kKinds[] = {
      "an undefined value", "none",   "a truth value", "an integer",  "a number",
      "a string",           "a list", "an object",     "a namespace", "the loop variable",
      "a function"};
  const std::string name = undefined_name();
  return name.empty() ? kKinds[data_.index()] : "'" + name + "', which is undefined";
}

int Value::depth() const {
  if (const List* list = as_list()) return list->depth;
  if (const Dict* dict = as_dict()) return dict->depth;
  return 0;
}

std::int64_t Value::weight() const {
  if (const List* list = as_list()) return list->weight;
  if (const Dict* dict = as_dict()) return dict->weight;
  return width();
}

std::int64_t Value::width() const {
  std::size_t size = 0;
  if (const List* list = as_list()) size = list->items.size();
  if (const Dict* dict = as_dict()) size = dict->items().size();
  if (const std::string* text = as_text()) size = text->size();
  return static_cast<std::int64_t>(size);
}

const Value* Dict::find(std::string_view key) const {
  if (items_.size() > kFewItems) {
    const auto found = places_.find(key);
    return found == places_.end() ? nullptr : &items_[found->second].second;
  }
  for (const auto& [name, value] : items_) {
    if (name == key) return &value;
  }
  return nullptr;
}

void Dict::set(std::string key, Value value) {
  if (const Value* held = find(key)) {
    *const_cast<Value*>(held) = std::move(value);  // an element of items_
    return;
  }
  items_.emplace_back(std::move(key), std::move(value));
  if (items_.size() <= kFewItems) return;
  for (std::size_t i = places_.size(); i < items_.size(); ++i) places_.emplace(items_[i].first, i);
}

bool is_number(const Value& value) {
  return value.as_bool() != nullptr || value.as_integer() != nullptr || value.as_real() != nullptr;
}

double number_of(const Value& value) {
  if (const bool* truth = value.as_bool()) return *truth ? 1 : 0;
  if (const std::int64_t* integer = value.as_integer()) return static_cast<double>(*integer);
  if (const double* real = value.as_real()) return *real;
  throw_not_a_number(value);
}

std::int64_t integer_of(const Value& value, std::string_view what) {
  if (const bool* truth = value.as_bool()) return *truth ? 1 : 0;
  if (const std::int64_t* integer = value.as_integer()) return *integer;
  throw RenderError(std::string(what) + " must be an integer, not " + value.kind());
}

bool is_true(const Value& value) {
  if (is_number(value)) return number_of(value) != 0;
  if (const std::string* text = value.as_text()) return !text->empty();
  if (const List* list = value.as_list()) return !list->items.empty();
  if (const Dict* dict = value.as_dict()) return !dict->items().empty();
  return !value.is_undefined() && !value.is_none();
}

bool equal(const Value& left, const Value& right) {
  if (is_number(left) && is_number(right)) {
    if (left.as_real() == nullptr && right.as_real() == nullptr) {
      return integer_of(left, "") == integer_of(right, "");
    }
    return number_of(left) == number_of(right);
  }
  if (left.is_text() && right.is_text()) return *left.as_text() == *right.as_text();
  const List *a = left.as_list(), *b = right.as_list();
  if (a != nullptr && b != nullptr) {
    return a->tuple == b->tuple &&
           std::equal(a->items.begin(), a->items.end(), b->items.begin(), b->items.end(), equal);
  }
  const Dict *c = left.as_dict(), *d = right.as_dict();
  if (c != nullptr && d != nullptr) {
    return c->items().size() == d->items().size() &&
           std::all_of(c->items().begin(), c->items().end(), [&](const Dict::Item& item) {
             const Value* other = d->find(item.first);
             return other != nullptr && equal(item.second, *other);
           });
  }
  if (left.as_space() != nullptr) return left.as_space() == right.as_space();
  return (left.is_none() && right.is_none()) || (left.is_undefined() && right.is_undefined());
}

bool less(const Value& left, const Value& right) {
  if (is_number(left) && is_number(right)) {
    if (left.as_real() == nullptr && right.as_real() == nullptr) {
      return integer_of(left, "") < integer_of(right, "");
    }
    return number_of(left) < number_of(right);
  }
  if (left.is_text() && right.is_text()) return *left.as_text() < *right.as_text();
  const List *a = left.as_list(), *b = right.as_list();
  if (a != nullptr && b != nullptr) {
    return std::lexicographical_compare(a->items.begin(), a->items.end(), b->items.begin(),
                                        b->items.end(), less);
  }
  throw RenderError(left.kind() + " and " + right.kind() + " have no order");
}

bool contains(const Value& haystack, const Value& needle) {
  if (const std::string* text = haystack.as_text()) {
    if (!needle.is_text())
      throw RenderError("'in' a string expects a string, not " + needle.kind());
    return text->find(*needle.as_text()) != std::string::npos;
  }
  if (const Dict* dict = haystack.as_dict()) {
    return needle.is_text() && dict->find(*needle.as_text()) != nullptr;
  }
  if (const List* list = haystack.as_list()) {
    return std::any_of(list->items.begin(), list->items.end(),
                       [&](const Value& item) { return equal(item, needle); });
  }
  if (haystack.is_undefined()) return false;
  throw RenderError("'in' expects a string, a list or an object, not " + haystack.kind());
}

std::vector<Value> elements_of(const Value& value) {
  std::vector<Value> elements;
  if (const List* list = value.as_list()) return list->items;
  if (const Dict* dict = value.as_dict()) {
    for (const auto& item : dict->items()) elements.push_back(Value::text(item.first));
    return elements;
  }
  if (const std::string* text = value.as_text()) {
    for (const std::string_view character : characters_of(*text)) {
      elements.push_back(Value::text(std::string(character)));
    }
    return elements;
  }
  if (value.is_undefined()) return elements;
  throw RenderError(value.kind() + " has no elements");
}

}  // namespace sluice::jinja
