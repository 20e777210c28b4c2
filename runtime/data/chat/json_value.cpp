#include "runtime/data/chat/json_value.hpp"

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "runtime/data/json_lines.hpp"

namespace sluice {
namespace {

using Json = nlohmann::json;
using jinja::Value;

constexpr std::size_t kDeepest = 100;

// Events of nlohmann's parser: builds values bottom up, without recursion.
class ValueBuilder {
 public:
  std::string error;
  std::optional<Value> root;

  bool null() { return add(Value::none()); }
  bool boolean(bool truth) { return add(Value::boolean(truth)); }
  bool number_integer(Json::number_integer_t number) { return add(Value::integer(number)); }
  bool number_unsigned(Json::number_unsigned_t number) {
    if (number > static_cast<Json::number_unsigned_t>(INT64_MAX))
      return too_large(std::to_string(number), "the integer ");
    return add(Value::integer(static_cast<std::int64_t>(number)));
  }
  bool number_float(Json::number_float_t number, const std::string& digits) {
    if (digits.find_first_of(".eE") == digits.npos) return too_large(digits, "the integer ");
    return add(Value::real(number));
  }
  bool binary(Json::binary_t&) { return false; }
  bool string(std::string& text) { return add(Value::text(std::move(text))); }
  bool key(std::string& name) {
    open_.back().key = std::move(name);
    return true;
  }
  bool start_object(std::size_t) { return start(true); }
  bool start_array(std::size_t) { return start(false); }
  bool end_object() { return end(); }
  bool end_array() { return end(); }
  bool parse_error(std::size_t position, const std::string& token, const Json::exception& problem) {
    if (problem.id == kJsonNumberTooLarge) return too_large(token, "the number ");
    error = "not valid JSON at byte " + std::to_string(position);
    return false;
  }

 private:
  struct Open {
    bool object = false;
    std::string key{};
    jinja::Dict dict{};
    std::vector<Value> list{};
  };

  bool too_large(const std::string& digits, const char* kind) {
    error = kind + digits.substr(0, 40) + " is too large for 64 bits";
    return false;
  }
  bool start(bool object) {
    if (open_.size() >= kDeepest) {
      error = "nested more than " + std::to_string(kDeepest) + " levels deep";
      return false;
    }
    open_.push_back({.object = object});
    return true;
  }
  bool end() {
    Open last = std::move(open_.back());
    open_.pop_back();
    return add(last.object ? Value::dict(std::move(last.dict)) : Value::list(std::move(last.list)));
  }
  bool add(Value value) {
    if (open_.empty()) {
      root = std::move(value);
    } else if (open_.back().object) {
      open_.back().dict.set(std::move(open_.back().key), std::move(value));
    } else {
      open_.back().list.push_back(std::move(value));
    }
    return true;
  }

  std::vector<Open> open_;
};

}  // namespace

JsonValue parse_json_value(std::string_view text) {
  std::string mended;
  if (text.find("\\u") != text.npos) {
    mended = without_lone_surrogates(text);
    text = mended;
  }
  ValueBuilder builder;
  try {
    if (Json::sax_parse(text.begin(), text.end(), &builder) && builder.root) {
      return {std::move(*builder.root), ""};
    }
  } catch (const jinja::RenderError& error) {
    builder.error = error.what();
  }
  return {Value(), builder.error.empty() ? "not valid JSON" : builder.error};
}

}  // namespace sluice
