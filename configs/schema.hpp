// Every key of the configuration, once: name, type, range, meaning and the field of RunConfig that
// it sets. Reader, resolved text, JSON Schema and messages follow from this table. A default is the
// value of a RunConfig{}, written nowhere else. Immutable after first use; thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "configs/run_config.hpp"

namespace sluice {

struct Record;

// A value of a key. Counts, bytes and enums (their position among the choices) are std::int64_t,
// seconds are double.
using Value =
    std::variant<bool, std::int64_t, double, std::string, std::vector<double>,
                 std::vector<std::int64_t>, std::vector<std::string>, std::vector<Record>>;

// One map of a kRecords list: a value for each field of Rules::fields, in that order.
struct Record {
  std::vector<Value> values;

  bool operator==(const Record& other) const { return values == other.values; }
};

enum class KeyType {
  kCount,     // 12, 50k, 1e9
  kBytes,     // 24GiB, 512MiB, 4096
  kSeconds,   // 600, 30s, 5m, 2h
  kInterval,  // 500 (steps), 30min: a std::string, as write_interval has it
  kSteps,     // 500, or 5% of train.steps: a std::string, as write_steps has it
  kRate,      // 3e-5, or 10% of optimizer.lr: a std::string, as write_rate has it
  kFloat,
  kBool,
  kEnum,
  kPath,     // relative to the working directory
  kFloats,   // a list of `length` numbers
  kCounts,   // a list of whole numbers, of any length
  kPaths,    // a list; a single path stands for a list of one
  kRecords,  // a list of maps, all with the same fields
};

[[nodiscard]] constexpr bool is_list_type(KeyType type) {
  return type == KeyType::kFloats || type == KeyType::kCounts || type == KeyType::kPaths ||
         type == KeyType::kRecords;
}

struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_open = false;  // min itself is outside
  bool max_open = false;

  [[nodiscard]] bool holds(double value) const {
    return (min_open ? value > min : value >= min) && (max_open ? value < max : value <= max);
  }
};

struct RecordField;

// The allowed values of a key.
struct Rules {
  KeyType type = KeyType::kPath;
  Range range{};
  std::vector<std::string_view> choices{};  // kEnum: in the order of the C++ enum
  std::string_view zero_word{};             // a word that stands for 0, e.g. "auto"
  std::size_t length = 0;                   // kFloats
  std::size_t optional = 0;                 // kFloats: of the length, how many may be left out
  bool may_be_empty = true;                 // kPath
  std::string_view noun = "path";           // kPath, kPaths: in messages
  std::shared_ptr<const std::vector<RecordField>> fields{};  // kRecords

  [[nodiscard]] Rules or_word(std::string_view word) const {
    Rules copy = *this;
    copy.zero_word = word;
    return copy;
  }
};

// A key of the maps of a kRecords list.
struct RecordField {
  std::string_view name;
  Rules rules;
  std::string_view doc;
  bool required = false;
  Value fallback;  // of a map without this key
};

struct Key {
  std::string_view section;
  std::string_view name;
  Rules rules;
  std::string_view doc;
  std::function<Value(const RunConfig&)> get;
  std::function<void(RunConfig&, const Value&)> set;  // REQUIRES: a value that keeps to the rules
  std::string_view when;  // the condition under which the key has an effect; empty: always
  // Whether `when` holds. Empty: always, or the configuration alone does not tell.
  std::function<bool(const RunConfig&)> has_effect;
  std::string_view example;  // a value as YAML; empty: one that follows from the rules

  [[nodiscard]] std::string path() const { return std::string(section) + "." + std::string(name); }
};

struct Section {
  std::string_view name;
  std::string_view doc;
  std::vector<Key> keys;
};

// The sections in their fixed order.
[[nodiscard]] const std::vector<Section>& schema();

// nullptr if absent.
[[nodiscard]] const Section* find_section(std::string_view name);
[[nodiscard]] const Key* find_key(std::string_view section, std::string_view name);
[[nodiscard]] const Key* find_key(std::string_view path);  // "zero.stage"

inline constexpr std::string_view kBaseDoc =
    "Another configuration whose values hold where this one says nothing; relative to this file. "
    "If this file is reached by a symbolic link, the folder of the link comes first, then that of "
    "the file itself.";

}  // namespace sluice
