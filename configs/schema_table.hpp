// The vocabulary of the schema's table: rules of values, and the maker of a section. Only for
// schema.cpp and its parts schema_*.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "configs/interval.hpp"
#include "configs/schema.hpp"

namespace sluice::schema_table {

// With each dimension at most this, sums and products of a few dimensions stay below 2^63.
inline constexpr double kMaxDim = 2147483647;
inline constexpr double kMaxSeconds = 1e7;
// A chunk is whole blocks of the norm's sum (kChunkAlignElems of fp32). At the upper end the bytes
// of a ring of chunks still fit an integer.
inline constexpr double kSmallestChunk = 4096 * 4;
inline constexpr double kLargestChunk = static_cast<double>(std::int64_t{1} << 40);
inline constexpr double kSmallestBlock = 4096;
inline constexpr double kLargestBlock = 256 << 20;

inline Rules count(double min, double max = kMaxDim) {
  return {.type = KeyType::kCount, .range = {.min = min, .max = max}};
}
inline Rules bytes(double min) { return {.type = KeyType::kBytes, .range = {.min = min}}; }
inline Rules bytes(double min, double max) {
  return {.type = KeyType::kBytes, .range = {.min = min, .max = max}};
}
inline Rules number(Range range) { return {.type = KeyType::kFloat, .range = range}; }
inline Rules seconds() {
  return {.type = KeyType::kSeconds, .range = {.min = 0, .max = kMaxSeconds, .min_open = true}};
}
inline Rules steps() { return {.type = KeyType::kSteps, .range = {.min = 0, .max = kMaxDim}}; }
inline Rules rate() { return {.type = KeyType::kRate, .range = {.min = 0}}; }
inline Rules boolean() { return {.type = KeyType::kBool}; }
inline Rules one_of(std::vector<std::string_view> choices) {
  return {.type = KeyType::kEnum, .choices = std::move(choices)};
}
inline Rules path() { return {.type = KeyType::kPath}; }
inline Rules needed_path() { return {.type = KeyType::kPath, .may_be_empty = false}; }
inline Rules paths() { return {.type = KeyType::kPaths}; }
inline Rules patterns() { return {.type = KeyType::kPaths, .noun = "pattern"}; }
inline Rules numbers(std::size_t length, Range range) {
  return {.type = KeyType::kFloats, .range = range, .length = length};
}

inline Rules numbers(std::size_t length, std::size_t optional, Range range) {
  return {.type = KeyType::kFloats, .range = range, .length = length, .optional = optional};
}

inline Rules counts(double min, double max) {
  return {.type = KeyType::kCounts, .range = {.min = min, .max = max}};
}

inline constexpr Range kAtLeastZero{.min = 0};
inline constexpr Range kAboveZero{.min = 0, .min_open = true};
inline constexpr Range kBelowOne{.min = 0, .max = 1, .max_open = true};
inline constexpr Range kZeroToOne{.min = 0, .max = 1};

template <class Field>
inline constexpr bool kHeldAsInteger = std::is_enum_v<Field> ||
                                       (std::is_integral_v<Field> && !std::is_same_v<Field, bool>);

template <class Field>
Value to_value(const Field& field) {
  if constexpr (kHeldAsInteger<Field>) {
    return static_cast<std::int64_t>(field);
  } else if constexpr (std::is_same_v<Field, std::array<double, 2>>) {
    return std::vector<double>(field.begin(), field.end());
  } else if constexpr (std::is_same_v<Field, std::vector<int>>) {
    return std::vector<std::int64_t>(field.begin(), field.end());
  } else if constexpr (std::is_same_v<Field, SaveInterval>) {
    return write_interval(field);
  } else if constexpr (std::is_same_v<Field, StepCount>) {
    return write_steps(field);
  } else if constexpr (std::is_same_v<Field, RateBound>) {
    return write_rate(field);
  } else {
    return field;
  }
}

template <class Field>
void from_value(const Value& value, Field& field) {
  if constexpr (kHeldAsInteger<Field>) {
    field = static_cast<Field>(std::get<std::int64_t>(value));
  } else if constexpr (std::is_same_v<Field, std::array<double, 2>>) {
    const auto& list = std::get<std::vector<double>>(value);
    field = {list[0], list[1]};
  } else if constexpr (std::is_same_v<Field, std::vector<int>>) {
    field.clear();
    for (const std::int64_t count : std::get<std::vector<std::int64_t>>(value)) {
      field.push_back(static_cast<int>(count));
    }
  } else if constexpr (std::is_same_v<Field, SaveInterval>) {
    field = read_interval(std::get<std::string>(value)).value_or(SaveInterval{});
  } else if constexpr (std::is_same_v<Field, StepCount>) {
    field = read_steps(std::get<std::string>(value)).value_or(StepCount{});
  } else if constexpr (std::is_same_v<Field, RateBound>) {
    field = read_rate(std::get<std::string>(value)).value_or(RateBound{});
  } else {
    field = std::get<Field>(value);
  }
}

// Collects the fields of a list of maps; `Item` is the struct that one map becomes. A field's
// default is the value of an Item{}.
template <class Item>
class RecordMaker {
 public:
  template <class Field>
  RecordMaker& field(std::string_view name, Field Item::*field, Rules rules, std::string_view doc) {
    fields_.push_back({name, std::move(rules), doc, false, to_value(Item{}.*field)});
    getters_.push_back([field](const Item& item) { return to_value(item.*field); });
    setters_.push_back([field](Item& item, const Value& value) { from_value(value, item.*field); });
    return *this;
  }
  // Each map must have the last added field.
  RecordMaker& required() {
    fields_.back().required = true;
    return *this;
  }

  [[nodiscard]] Rules rules() const {
    return {.type = KeyType::kRecords,
            .fields = std::make_shared<const std::vector<RecordField>>(fields_)};
  }
  [[nodiscard]] Value write(const std::vector<Item>& items) const {
    std::vector<Record> records(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      for (const auto& get : getters_) records[i].values.push_back(get(items[i]));
    }
    return records;
  }
  // REQUIRES: a value that keeps to rules().
  [[nodiscard]] std::vector<Item> read(const Value& value) const {
    const auto& records = std::get<std::vector<Record>>(value);
    std::vector<Item> items(records.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      for (std::size_t f = 0; f < setters_.size(); ++f) setters_[f](items[i], records[i].values[f]);
    }
    return items;
  }

 private:
  std::vector<RecordField> fields_;
  std::vector<std::function<Value(const Item&)>> getters_;
  std::vector<std::function<void(Item&, const Value&)>> setters_;
};

// Collects a section's keys; `Options` is the section's struct.
template <class Options>
class SectionMaker {
 public:
  SectionMaker(std::string_view name, Options RunConfig::*options, std::string_view doc)
      : section_{name, doc, {}}, options_(options) {}

  template <class Field>
  SectionMaker& key(std::string_view name, Field Options::*field, Rules rules,
                    std::string_view doc) {
    const auto options = options_;
    section_.keys.push_back(
        {section_.name,
         name,
         std::move(rules),
         doc,
         [options, field](const RunConfig& run) { return to_value(run.*options.*field); },
         [options, field](RunConfig& run, const Value& value) {
           from_value(value, run.*options.*field);
         },
         {},
         {},
         {}});
    return *this;
  }
  // A key whose value is a list of maps.
  template <class Item>
  SectionMaker& records(std::string_view name, std::vector<Item> Options::*field,
                        const RecordMaker<Item>& maker, std::string_view doc) {
    const auto options = options_;
    section_.keys.push_back(
        {section_.name,
         name,
         maker.rules(),
         doc,
         [options, field, maker](const RunConfig& run) { return maker.write(run.*options.*field); },
         [options, field, maker](RunConfig& run, const Value& value) {
           run.*options.*field = maker.read(value);
         },
         {},
         {},
         {}});
    return *this;
  }
  // The condition under which the last added key has an effect, and whether it holds.
  SectionMaker& when(std::string_view condition,
                     std::function<bool(const RunConfig&)> has_effect = {}) {
    section_.keys.back().when = condition;
    section_.keys.back().has_effect = std::move(has_effect);
    return *this;
  }
  // An example value of the last added key, for keys whose rules give none.
  SectionMaker& example(std::string_view value) {
    section_.keys.back().example = value;
    return *this;
  }
  operator Section() const { return section_; }  // NOLINT(google-explicit-constructor)

 private:
  Section section_;
  Options RunConfig::*options_;
};

[[nodiscard]] Section model_section();
[[nodiscard]] Section data_section();
[[nodiscard]] Section zero_section();
[[nodiscard]] Section offload_section();
[[nodiscard]] Section memory_section();

}  // namespace sluice::schema_table
