#include <algorithm>
#include <map>

#include "runtime/data/chat/jinja/builtins.hpp"
#include "runtime/data/chat/jinja/strings.hpp"

namespace sluice::jinja {
namespace {

using Method = Value (*)(const Value& self, const Arguments& arguments);

Value text_value(std::string_view text) { return Value::text(std::string(text)); }

template <bool kLeft, bool kRight>
Value stripped(const Value& self, const Arguments& arguments) {
  const Parameters given("strip", arguments, {"chars"});
  const bool chars = given.has(0) && !given.get(0).is_none();
  if (chars && given.text(0).empty()) return self;
  return text_value(strip(*self.as_text(), chars ? given.text(0) : "", kLeft, kRight));
}

// split without a separator: words between white space.
std::vector<Value> words_of(std::string_view text, std::int64_t most) {
  std::vector<Value> words;
  for (text = strip(text, "", true, false); !text.empty(); text = strip(text, "", true, false)) {
    if (static_cast<std::int64_t>(words.size()) == most) {
      words.push_back(text_value(strip(text, "", false, true)));
      break;
    }
    std::size_t size = 0;
    for (const std::string_view character : characters_of(text)) {
      if (strip(character, "", true, false).empty()) break;
      size += character.size();
    }
    words.push_back(text_value(text.substr(0, size)));
    text.remove_prefix(size);
  }
  return words;
}

template <bool kFromRight>
Value split(const Value& self, const Arguments& arguments) {
  const Parameters given("split", arguments, {"sep", "maxsplit"});
  std::string_view text = *self.as_text();
  std::int64_t most = given.integer(1, -1);
  if (!given.has(0) || given.get(0).is_none()) {
    if (kFromRight && most >= 0) throw RenderError("rsplit needs a separator");
    return Value::list(words_of(text, most));
  }
  const std::string between = given.text(0);
  if (between.empty()) throw RenderError("split: the separator is empty");
  std::vector<Value> parts;
  for (; most != 0; --most) {
    const std::size_t at = kFromRight ? text.rfind(between) : text.find(between);
    if (at == text.npos) break;
    parts.push_back(text_value(kFromRight ? text.substr(at + between.size()) : text.substr(0, at)));
    text = kFromRight ? text.substr(0, at) : text.substr(at + between.size());
  }
  parts.push_back(text_value(text));
  if (kFromRight) std::reverse(parts.begin(), parts.end());
  return Value::list(std::move(parts));
}

template <bool kStart>
Value has_end(const Value& self, const Arguments& arguments) {
  const Parameters given(kStart ? "startswith" : "endswith", arguments, {"prefix"});
  const auto matches = [&](const Value& end) {
    if (!end.is_text()) throw RenderError("startswith and endswith expect strings");
    return kStart ? self.as_text()->starts_with(*end.as_text())
                  : self.as_text()->ends_with(*end.as_text());
  };
  const Value ends = given.get(0);
  const List* list = ends.as_list();
  if (list == nullptr) return Value::boolean(matches(ends));
  return Value::boolean(std::any_of(list->items.begin(), list->items.end(), matches));
}

template <bool kLast>
Value find(const Value& self, const Arguments& arguments) {
  const Parameters given("find", arguments, {"sub"});
  const std::string_view text = *self.as_text();
  const std::size_t at = kLast ? text.rfind(given.text(0)) : text.find(given.text(0));
  return Value::integer(at == text.npos ? -1 : length_of(text.substr(0, at)));
}

Value count(const Value& self, const Arguments& arguments) {
  const Parameters given("count", arguments, {"sub"});
  if (const List* list = self.as_list()) {
    const Value wanted = given.get(0);
    return Value::integer(std::count_if(list->items.begin(), list->items.end(),
                                        [&](const Value& item) { return equal(item, wanted); }));
  }
  const std::string part = given.text(0);
  if (part.empty()) return Value::integer(length_of(*self.as_text()) + 1);
  std::int64_t found = 0;
  for (std::size_t at = 0; (at = self.as_text()->find(part, at)) != std::string::npos; ++found) {
    at += part.size();
  }
  return Value::integer(found);
}

Value index(const Value& self, const Arguments& arguments) {
  const Parameters given("index", arguments, {"value"});
  if (self.is_text()) {
    Value place = find<false>(self, arguments);
    if (*place.as_integer() < 0) throw RenderError("index: the text is not found");
    return place;
  }
  const std::vector<Value>& items = self.as_list()->items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (equal(items[i], given.get(0))) return Value::integer(static_cast<std::int64_t>(i));
  }
  throw RenderError("index: the value is not in the list");
}

Value replace(const Value& self, const Arguments& arguments) {
  const Parameters given("replace", arguments, {"old", "new", "count"});
  return Value::text(replaced(*self.as_text(), given.text(0), given.text(1), given.integer(2, -1)));
}

Value join(const Value& self, const Arguments& arguments) {
  const Parameters given("join", arguments, {"iterable"});
  std::string out;
  bool first = true;
  for (const Value& element : elements_of(given.get(0))) {
    if (!element.is_text()) throw RenderError("join expects strings");
    if (!std::exchange(first, false)) out += *self.as_text();
    out += *element.as_text();
  }
  return Value::text(std::move(out));
}

Value lines(const Value& self, const Arguments& arguments) {
  const Parameters given("splitlines", arguments, {"keepends"});
  std::vector<Value> found;
  for (std::string_view text = *self.as_text(); !text.empty();) {
    const std::size_t size = std::min(text.find_first_of("\r\n"), text.size());
    const std::size_t end = text.substr(size).starts_with("\r\n") ? 2 : size < text.size() ? 1 : 0;
    found.push_back(text_value(text.substr(0, size + (given.truth(0, false) ? end : 0))));
    text.remove_prefix(size + end);
  }
  return Value::list(std::move(found));
}

template <bool kPrefix>
Value removed(const Value& self, const Arguments& arguments) {
  const Parameters given("removeprefix", arguments, {"part"});
  std::string_view text = *self.as_text();
  const std::string part = given.text(0);
  if (kPrefix && text.starts_with(part)) text.remove_prefix(part.size());
  if (!kPrefix && text.ends_with(part)) text.remove_suffix(part.size());
  return text_value(text);
}

template <std::string (*kChange)(std::string_view)>
Value changed(const Value& self, const Arguments& arguments) {
  const Parameters given("the method", arguments, {});
  return Value::text(kChange(*self.as_text()));
}

Value is_digits(const Value& self, const Arguments& arguments) {
  const Parameters given("isdigit", arguments, {});
  const std::string& text = *self.as_text();
  return Value::boolean(!text.empty() && text.find_first_not_of("0123456789") == text.npos);
}

Value get(const Value& self, const Arguments& arguments) {
  const Parameters given("get", arguments, {"key", "default"});
  const Value key = given.get(0);
  const Value* found = key.is_text() ? self.as_dict()->find(*key.as_text()) : nullptr;
  return found != nullptr ? *found : given.get(1, Value::none());
}

template <bool kKeys, bool kValues>
Value parts(const Value& self, const Arguments& arguments) {
  const Parameters given("the method", arguments, {});
  std::vector<Value> found;
  for (const auto& [key, value] : self.as_dict()->items()) {
    if (kKeys && kValues) found.push_back(Value::list({Value::text(key), value}, true));
    if (kKeys && !kValues) found.push_back(Value::text(key));
    if (!kKeys) found.push_back(value);
  }
  return Value::list(std::move(found));
}

Value copied(const Value& self, const Arguments& arguments) {
  const Parameters given("copy", arguments, {});
  return self;
}

// Python's other methods change the value or are not supported here: a call names them.
Value refused(const Value& self, const Arguments&) {
  throw RenderError("this method of " + self.kind() +
                    " would change the value, or is not supported");
}

using Methods = std::map<std::string_view, Method>;

const Methods& text_methods() {
  static const Methods kMethods{{"strip", stripped<true, true>},
                                {"lstrip", stripped<true, false>},
                                {"rstrip", stripped<false, true>},
                                {"split", split<false>},
                                {"rsplit", split<true>},
                                {"startswith", has_end<true>},
                                {"endswith", has_end<false>},
                                {"find", find<false>},
                                {"rfind", find<true>},
                                {"count", count},
                                {"index", index},
                                {"replace", replace},
                                {"join", join},
                                {"splitlines", lines},
                                {"removeprefix", removed<true>},
                                {"removesuffix", removed<false>},
                                {"upper", changed<to_upper>},
                                {"lower", changed<to_lower>},
                                {"title", changed<to_title>},
                                {"capitalize", changed<capitalized>},
                                {"isdigit", is_digits},
                                {"format", refused},
                                {"zfill", refused},
                                {"center", refused},
                                {"ljust", refused},
                                {"rjust", refused},
                                {"partition", refused},
                                {"rpartition", refused},
                                {"encode", refused}};
  return kMethods;
}

const Methods& list_methods() {
  static const Methods kMethods{{"count", count},    {"index", index},    {"copy", copied},
                                {"append", refused}, {"extend", refused}, {"insert", refused},
                                {"pop", refused},    {"remove", refused}, {"reverse", refused},
                                {"sort", refused},   {"clear", refused}};
  return kMethods;
}

const Methods& dict_methods() {
  static const Methods kMethods{{"get", get},
                                {"items", parts<true, true>},
                                {"keys", parts<true, false>},
                                {"values", parts<false, true>},
                                {"copy", copied},
                                {"pop", refused},
                                {"popitem", refused},
                                {"update", refused},
                                {"setdefault", refused},
                                {"clear", refused},
                                {"fromkeys", refused}};
  return kMethods;
}

Value loop_part(const Loop& loop, const std::string& name) {
  const auto index = static_cast<std::int64_t>(loop.index);
  const auto length = static_cast<std::int64_t>(loop.items->size());
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(length - index);
  if (name == "revindex0") return Value::integer(length - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == length);
  if (name == "length") return Value::integer(length);
  if (name == "depth") return Value::integer(loop.depth);
  if (name == "depth0") return Value::integer(loop.depth - 1);
  if (name == "previtem" && index > 0) return (*loop.items)[loop.index - 1];
  if (name == "nextitem" && index + 1 < length) return (*loop.items)[loop.index + 1];
  if (name == "previtem" || name == "nextitem") return Value::undefined("loop." + name);
  throw RenderError("loop." + name + " is not supported");
}

}  // namespace

Value method_of(const Value& input, const std::string& name, Budget& budget) {
  const bool text = input.is_text(), list = input.as_list() != nullptr;
  if (!text && !list && input.as_dict() == nullptr) return Value();
  const Methods& methods = text ? text_methods() : list ? list_methods() : dict_methods();
  const auto found = methods.find(name);
  if (found == methods.end()) return Value();
  return Value::callable({[input, &budget, call = found->second](const Arguments& arguments) {
    budget.charge(input.width());
    Value result = call(input, arguments);
    budget.charge(result.width());
    return result;
  }});
}

Value attribute_of(const Value& input, const std::string& name, Budget& budget) {
  if (input.is_undefined()) {
    throw RenderError(input.kind() + ", has no attribute '" + name + "'");
  }
  if (const Loop* loop = input.as_loop()) return loop_part(*loop, name);
  if (const Namespace* space = input.as_space()) {
    const Value* found = space->attributes.find(name);
    return found != nullptr ? *found : Value::undefined(name);
  }
  Value method = method_of(input, name, budget);
  if (!method.is_undefined()) return method;
  const Dict* dict = input.as_dict();
  const Value* found = dict != nullptr ? dict->find(name) : nullptr;
  return found != nullptr ? *found : Value::undefined(name);
}

Value item_of(const Value& input, const Value& key, Budget& budget) {
  const Dict* dict = input.as_dict();
  if (key.is_text()) {
    const Value* found = dict != nullptr ? dict->find(*key.as_text()) : nullptr;
    return found != nullptr ? *found : attribute_of(input, *key.as_text(), budget);
  }
  if (input.is_undefined()) throw RenderError(input.kind() + ", has no elements");
  if (dict != nullptr || !is_number(key) || key.as_real() != nullptr) return Value::undefined("");
  std::int64_t index = integer_of(key, "an index");
  if (const List* list = input.as_list()) {
    if (index < 0) index += input.width();
    if (index < 0 || index >= input.width()) return Value::undefined(std::to_string(index));
    return list->items[static_cast<std::size_t>(index)];
  }
  if (const std::string* text = input.as_text()) {
    budget.charge(input.width());
    const auto characters = characters_of(*text);
    const auto size = static_cast<std::int64_t>(characters.size());
    if (index < 0) index += size;
    if (index < 0 || index >= size) return Value::undefined(std::to_string(index));
    return text_value(characters[static_cast<std::size_t>(index)]);
  }
  return Value::undefined(std::to_string(index));
}

}  // namespace sluice::jinja
