#include "configs/json_schema.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <variant>

#include "base/index.hpp"
#include "configs/schema.hpp"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kNumber = "[0-9][0-9_]*(\\.[0-9]+)?([eE][+-]?[0-9]+)?";

Json reference(const char* name) { return {{"$ref", std::string("#/$defs/") + name}}; }

// 3.0 as 3: a bound of an integer should look like one.
Json plain_number(double value) {
  if (value == std::floor(value) && std::abs(value) < 9e15) return static_cast<std::int64_t>(value);
  return value;
}

Json ranged(const char* type, const Range& range) {
  Json out{{"type", type}};
  if (std::isfinite(range.min)) {
    out[range.min_open ? "exclusiveMinimum" : "minimum"] = plain_number(range.min);
  }
  if (std::isfinite(range.max)) {
    out[range.max_open ? "exclusiveMaximum" : "maximum"] = plain_number(range.max);
  }
  return out;
}

Json word(std::string_view text) { return {{"const", std::string(text)}}; }

Json any_of(std::initializer_list<Json> options) {
  Json list = Json::array();
  for (const Json& option : options) {
    if (!option.is_null()) list.push_back(option);
  }
  return {{"anyOf", list}};
}

Json enumeration(const Rules& rules) {
  Json names = Json::array();
  for (const std::string_view choice : rules.choices) names.push_back(std::string(choice));
  return {{"enum", names}};
}

Json map_of(const std::vector<RecordField>& fields);

// Every scalar may also be ${NAME}.
Json type_of(const Rules& rules) {
  const Json zero = rules.zero_word.empty() ? Json() : word(rules.zero_word);
  Json path{{"type", "string"}, {"minLength", rules.may_be_empty ? 0 : 1}};
  const Json variable = reference("variable");
  switch (rules.type) {
    case KeyType::kCount:
      return any_of({ranged("integer", rules.range), reference("count"), zero, variable});
    case KeyType::kBytes:
      return any_of({ranged("integer", rules.range), reference("size"), zero, variable});
    case KeyType::kSeconds:
      return any_of({ranged("number", rules.range), reference("time"), variable});
    case KeyType::kInterval:
      return any_of(
          {ranged("integer", {.min = 0}), reference("count"), reference("interval"), variable});
    case KeyType::kSteps:
      return any_of(
          {ranged("integer", rules.range), reference("count"), reference("share"), zero, variable});
    case KeyType::kRate:
      return any_of({ranged("number", rules.range), reference("share"), variable});
    case KeyType::kFloat:
      return any_of({ranged("number", rules.range), zero, variable});
    case KeyType::kBool:
      return any_of({{{"type", "boolean"}}, variable});
    case KeyType::kEnum:
      return any_of({enumeration(rules), variable});
    case KeyType::kPath:
      return path;
    case KeyType::kFloats:
      return {{"type", "array"},
              {"items", any_of({ranged("number", rules.range), variable})},
              {"minItems", rules.length - rules.optional},
              {"maxItems", rules.length}};
    case KeyType::kCounts:
      return {{"type", "array"},
              {"items", any_of({ranged("integer", rules.range), reference("count"), variable})}};
    case KeyType::kPaths: {
      const Json item{{"type", "string"}, {"minLength", 1}};
      return any_of({item, {{"type", "array"}, {"items", item}}});
    }
    case KeyType::kRecords:
      return {{"type", "array"}, {"items", map_of(*rules.fields)}};
  }
  return Json::object();
}

// The value in JSON, as the reader takes it.
Json value_of(const Rules& rules, const Value& value) {
  if (const auto* records = std::get_if<std::vector<Record>>(&value)) {
    Json list = Json::array();
    for (const Record& record : *records) {
      Json map = Json::object();
      for (std::size_t f = 0; f < record.values.size(); ++f) {
        const RecordField& field = (*rules.fields)[f];
        map[std::string(field.name)] = value_of(field.rules, record.values[f]);
      }
      list.push_back(std::move(map));
    }
    return list;
  }
  const auto* whole = std::get_if<std::int64_t>(&value);
  if (whole != nullptr && rules.type == KeyType::kEnum) {
    return std::string(nth(rules.choices, *whole));
  }
  const auto* number = std::get_if<double>(&value);
  const auto* text = std::get_if<std::string>(&value);
  const bool shares = rules.type == KeyType::kSteps || rules.type == KeyType::kRate;
  const bool no_steps = shares && text != nullptr && *text == "0";
  const bool is_zero =
      (whole != nullptr && *whole == 0) || (number != nullptr && *number == 0) || no_steps;
  if (is_zero && !rules.zero_word.empty()) return std::string(rules.zero_word);
  if (no_steps) return 0;
  return std::visit(
      [](const auto& held) {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::vector<Record>>) {
          return Json::array();
        } else {
          return Json(held);
        }
      },
      value);
}

Json map_of(const std::vector<RecordField>& fields) {
  Json properties = Json::object();
  Json required = Json::array();
  for (const RecordField& field : fields) {
    Json property{{"description", std::string(field.doc)}};
    property.update(type_of(field.rules));
    if (field.required) {
      required.push_back(std::string(field.name));
    } else {
      property["default"] = value_of(field.rules, field.fallback);
    }
    properties[std::string(field.name)] = std::move(property);
  }
  return {{"type", "object"},
          {"additionalProperties", false},
          {"required", std::move(required)},
          {"properties", std::move(properties)}};
}

Json definitions() {
  const std::string number = kNumber;
  const auto text = [](const std::string& pattern) {
    return Json{{"type", "string"}, {"pattern", pattern}};
  };
  return {{"variable", text("^\\$\\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\\}$")},
          {"count", text("^" + number + " ?[kKMBGT]?$")},
          {"size", text("^" + number + " ?(B|[kKMGT]B|[KMGT]iB|[kKMG])?$")},
          {"time", text("^[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]+)?[smh]?$")},
          {"share", text("^[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]+)?%$")},
          {"interval", text("^[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]+)?(s|m|min|h)$")}};
}

Json section_of(const Section& section) {
  static const RunConfig defaults{};
  Json properties = Json::object();
  for (const Key& key : section.keys) {
    Json property{{"description", std::string(key.doc)}};
    property.update(type_of(key.rules));
    property["default"] = value_of(key.rules, key.get(defaults));
    properties[std::string(key.name)] = std::move(property);
  }
  return {{"description", std::string(section.doc)},
          {"type", {"object", "null"}},
          {"additionalProperties", false},
          {"properties", std::move(properties)}};
}

}  // namespace

std::string json_schema() {
  Json properties = Json::object();
  properties["base"] = {
      {"description", std::string(kBaseDoc)}, {"type", "string"}, {"minLength", 1}};
  for (const Section& section : schema()) {
    properties[std::string(section.name)] = section_of(section);
  }
  const Json root{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                  {"title", "Sluice configuration"},
                  {"type", "object"},
                  {"additionalProperties", false},
                  {"properties", std::move(properties)},
                  {"$defs", definitions()}};
  return root.dump(2) + "\n";
}

}  // namespace sluice
