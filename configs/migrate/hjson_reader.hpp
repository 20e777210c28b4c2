// Hjson text as a tree of values with their places: what DeepSpeed's hjson.load reads. JSON, and in
// addition: comments (#, //, /* */), keys without quotes, single quotes, text without quotes to the
// end of its line, ''' text over several lines, optional commas, optional outer braces.
//
// Text is bounded in bytes (4 MiB), values (100,000) and depth (200 levels), so no input can
// exhaust memory or the stack. Pure functions; thread-safe. README.md lists where the reader is
// stricter than hjson.load.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::migrate {

struct HjsonEntry;

struct HjsonNode {
  enum class Kind { kNull, kBool, kNumber, kText, kList, kObject };

  Kind kind = Kind::kNull;
  int line = 0;  // from 1; 0 where the value comes from no text
  int column = 0;
  bool boolean = false;
  // Python's type of a number: 5e8 and 1.0 are int, 0.5 and 1e12 are float. A whole number beyond
  // 64 bits has no `integer`.
  bool is_float = false;
  double number = 0;
  std::optional<std::int64_t> integer;  // kNumber with a whole value
  std::string text;                     // kText: the characters; kNumber: as written
  std::vector<HjsonNode> items;         // kList
  std::vector<HjsonEntry> entries;      // kObject, in the order of the text; keys are different

  // The value of a key; nullptr if the object lacks the key or the node is no object.
  [[nodiscard]] const HjsonNode* find(std::string_view key) const;
};

struct HjsonEntry {
  std::string key;
  int line = 0;  // of the key
  int column = 0;
  HjsonNode value;
};

struct HjsonProblem {
  int line = 0;
  int column = 0;
  std::string what;  // "cause; remedy"
};

struct HjsonDocument {
  HjsonNode root;  // an object; meaningless when there are problems
  std::vector<HjsonProblem> problems;
};

inline constexpr std::size_t kMaxHjsonBytes = std::size_t{4} << 20;
inline constexpr std::size_t kMaxHjsonValues = 100'000;
inline constexpr int kMaxHjsonDepth = 200;

// Reads one document whose root is an object. Reports the first syntax error, or every duplicate
// key and every value that is a placeholder of a template.
[[nodiscard]] HjsonDocument read_hjson(std::string_view text);

// The value as one line of JSON, for reports.
[[nodiscard]] std::string to_json(const HjsonNode& node);

// "an object", "a list", "text", "a number", "true or false", "null".
[[nodiscard]] std::string_view kind_name(HjsonNode::Kind kind);

}  // namespace sluice::migrate
