// A YAML document as plain values with their places. The only file that uses yaml-cpp; no header
// shows it. Text is bounded (1 MiB, 20 000 nodes with aliases counted as copies, 32 levels), so no
// input can exhaust memory or the stack. Pure functions; thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct YamlEntry;

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  int line = 0;  // from 1; 0 where there is no place (a node made by hand)
  int column = 0;
  std::string text;                // kScalar
  std::vector<YamlNode> items;     // kList
  std::vector<YamlEntry> entries;  // kMap, in the order of the file; a key may stand there twice
};

struct YamlEntry {
  YamlNode key;
  YamlNode value;
};

struct YamlProblem {
  int line = 0;  // from 1; 0: no place is known
  int column = 0;
  std::string what;
};

struct YamlDocument {
  YamlNode root;  // kNull for an empty text; meaningless when there are problems
  std::vector<YamlProblem> problems;
};

// Reads one document. Also refuses, beyond YAML's rules: tabs in the indentation, control
// characters, text that is not UTF-8, tags, keys that are not scalars, a second document.
[[nodiscard]] YamlDocument parse_yaml(const std::string& text);

// True if `text` is well-formed UTF-8 without control characters (tabs and line ends are allowed
// when `multi_line`).
[[nodiscard]] bool is_clean_text(std::string_view text, bool multi_line);

// `text` for a message: at most `limit` bytes; control characters and broken UTF-8 become '?'.
[[nodiscard]] std::string printable(std::string_view text, std::size_t limit = 60);
// The same between ' and '.
[[nodiscard]] std::string in_quotes(std::string_view text, std::size_t limit = 60);

}  // namespace sluice
