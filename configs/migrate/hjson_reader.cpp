#include "configs/migrate/hjson_reader.hpp"

#include <algorithm>
#include <cstdio>
#include <unordered_map>

#include "configs/migrate/hjson_scan.hpp"
#include "configs/migrate/template_check.hpp"
#include "configs/text_check.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

using Kind = HjsonNode::Kind;

// Lines and columns of byte offsets. A column counts bytes, as in the other readers.
class Places {
 public:
  explicit Places(std::string_view text) {
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (text[at] == '\n') starts_.push_back(at + 1);
    }
  }
  template <class Located>
  void set(Located& located, std::size_t at) const {
    const auto next = std::upper_bound(starts_.begin(), starts_.end(), at);
    located.line = static_cast<int>(next - starts_.begin());
    located.column = static_cast<int>(at - *(next - 1)) + 1;
  }
  [[nodiscard]] HjsonProblem problem(std::size_t at, std::string what) const {
    HjsonProblem problem{.what = std::move(what)};
    set(problem, at);
    return problem;
  }

 private:
  std::vector<std::size_t> starts_{0};
};

class Reader {
 public:
  explicit Reader(std::string_view text) : scan_(text), places_(text) {}

  [[nodiscard]] HjsonDocument read() {
    HjsonDocument document;
    try {
      document.root = root();
    } catch (const HjsonSyntaxError& error) {
      problems_ = {places_.problem(error.at, error.what)};
    }
    document.problems = std::move(problems_);
    return document;
  }

 private:
  [[nodiscard]] HjsonNode root() {
    scan_.skip_space_and_comments();
    const std::size_t begin = scan_.at();
    HjsonNode node = scan_.peek() == '{' || scan_.peek() == '[' ? value(1) : bare_object();
    scan_.skip_space_and_comments();
    if (!scan_.ended()) {
      throw HjsonSyntaxError{scan_.at(), "found " + scan_.found() +
                                             " after the end of the configuration; remove the "
                                             "text, or the bracket before the text"};
    }
    if (node.kind != Kind::kObject) {
      throw HjsonSyntaxError{begin, "the configuration is " + std::string(kind_name(node.kind)) +
                                        "; DeepSpeed takes an object { \"key\": value }"};
    }
    return node;
  }

  // An object without the outer braces.
  [[nodiscard]] HjsonNode bare_object() {
    HjsonNode node;
    node.kind = Kind::kObject;
    places_.set(node, scan_.at());
    while (!scan_.ended()) entry(node, 1);
    refuse_duplicates(node);
    return node;
  }

  [[nodiscard]] HjsonNode value(int depth) {
    const std::size_t at = scan_.at();
    if (++values_ > kMaxHjsonValues) {
      throw HjsonSyntaxError{at, "more than 100000 values; a configuration has some dozens"};
    }
    if (depth > kMaxHjsonDepth) {
      throw HjsonSyntaxError{at,
                             "brackets are nested more than 200 levels deep; a configuration "
                             "has at most 10 levels"};
    }
    HjsonNode node = unplaced_value(depth);
    places_.set(node, at);
    if (node.kind == Kind::kText) {
      if (const auto placeholder = find_placeholder(node.text)) {
        problems_.push_back(places_.problem(at, placeholder_message(*placeholder)));
      }
    }
    return node;
  }

  [[nodiscard]] HjsonNode unplaced_value(int depth) {
    HjsonNode node;
    const char c = scan_.peek();
    if (c == '{') return object(depth);
    if (c == '[') return list(depth);
    if (c == '"' || c == '\'') {
      node.kind = Kind::kText;
      const bool multiline = c == '\'' && scan_.peek(1) == c && scan_.peek(2) == c;
      node.text = multiline ? scan_.multiline_text() : scan_.quoted_text();
      return node;
    }
    if (scan_.ended() || is_punctuator(c)) {
      throw HjsonSyntaxError{scan_.at(), "expected a value, found " + scan_.found() +
                                             "; write a value, with quotes around text that "
                                             "starts with one of {}[],:"};
    }
    const std::size_t at = scan_.at();
    node = scan_.plain_value();
    if (node.kind == Kind::kText && node.text.find_first_of(",}]") != std::string::npos) {
      swallowed_at_ = at;
    }
    return node;
  }

  [[nodiscard]] HjsonNode object(int depth) {
    const std::size_t opening = scan_.at();
    HjsonNode node;
    node.kind = Kind::kObject;
    scan_.advance();
    scan_.skip_space_and_comments();
    while (scan_.peek() != '}') {
      if (scan_.ended()) throw not_closed(opening, "the object is not closed; write '}'");
      entry(node, depth);
    }
    scan_.advance();
    refuse_duplicates(node);
    return node;
  }

  // One "key: value", the comma behind the value, and white space.
  void entry(HjsonNode& object, int depth) {
    HjsonEntry entry;
    const std::size_t at = scan_.at();
    places_.set(entry, at);
    entry.key = scan_.key();
    if (const auto placeholder = find_placeholder(entry.key)) {
      problems_.push_back(places_.problem(at, placeholder_message(*placeholder)));
    }
    scan_.skip_space_and_comments();
    if (scan_.peek() != ':') {
      throw HjsonSyntaxError{scan_.at(), "expected ':' after the key " + in_quotes(entry.key) +
                                             ", found " + scan_.found() +
                                             "; write a colon between key and value"};
    }
    scan_.advance();
    scan_.skip_space_and_comments();
    entry.value = value(depth + 1);
    object.entries.push_back(std::move(entry));
    skip_comma();
  }

  [[nodiscard]] HjsonNode list(int depth) {
    const std::size_t opening = scan_.at();
    HjsonNode node;
    node.kind = Kind::kList;
    scan_.advance();
    scan_.skip_space_and_comments();
    while (scan_.peek() != ']') {
      if (scan_.ended()) throw not_closed(opening, "the list is not closed; write ']'");
      node.items.push_back(value(depth + 1));
      skip_comma();
    }
    scan_.advance();
    return node;
  }

  void skip_comma() {
    scan_.skip_space_and_comments();
    if (scan_.peek() == ',') scan_.advance();
    scan_.skip_space_and_comments();
  }

  // A value without quotes runs to the end of its line and often takes the closing bracket along.
  [[nodiscard]] HjsonSyntaxError not_closed(std::size_t opening, const std::string& what) const {
    if (!swallowed_at_) return {opening, what};
    return {*swallowed_at_,
            "text without quotes runs to the end of its line, with commas and brackets; write "
            "quotes around the text, or true, false, null in small letters"};
  }

  void refuse_duplicates(const HjsonNode& object) {
    std::unordered_map<std::string_view, int> lines;
    for (const HjsonEntry& entry : object.entries) {
      const auto [first, is_new] = lines.try_emplace(entry.key, entry.line);
      if (is_new) continue;
      problems_.push_back({entry.line, entry.column,
                           "the key " + in_quotes(entry.key) + " is given twice, first in line " +
                               std::to_string(first->second) + "; remove one of the two"});
    }
  }

  HjsonScan scan_;
  Places places_;
  std::vector<HjsonProblem> problems_;
  std::size_t values_ = 0;
  std::optional<std::size_t> swallowed_at_;  // the last text without quotes that holds , } or ]
};

HjsonDocument refused(HjsonProblem problem) {
  return {.root = {}, .problems = {std::move(problem)}};
}

// A byte that is no text; nullopt if there is none.
std::optional<HjsonProblem> bad_byte(std::string_view text) {
  const Places places(text);
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const std::size_t length = utf8_length(text, at);
    if (length == 0) return places.problem(at, "a byte that is not UTF-8; save the file as UTF-8");
    if ((byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7f) {
      return places.problem(at, "a control character; remove it, a configuration is plain text");
    }
    at += length;
  }
  return std::nullopt;
}

void append_json(std::string& to, std::string_view text) {
  to += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      to += '\\';
      to += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(byte));
      to += escaped;
    } else {
      to += c;
    }
  }
  to += '"';
}

void append_json(std::string& to, const HjsonNode& node) {
  const char* comma = "";
  switch (node.kind) {
    case Kind::kNull:
      to += "null";
      return;
    case Kind::kBool:
      to += node.boolean ? "true" : "false";
      return;
    case Kind::kNumber:
      to += node.text;
      return;
    case Kind::kText:
      append_json(to, node.text);
      return;
    case Kind::kList:
      to += '[';
      for (const HjsonNode& item : node.items) {
        to += comma;
        append_json(to, item);
        comma = ", ";
      }
      to += ']';
      return;
    case Kind::kObject:
      to += '{';
      for (const HjsonEntry& entry : node.entries) {
        to += comma;
        append_json(to, entry.key);
        to += ": ";
        append_json(to, entry.value);
        comma = ", ";
      }
      to += '}';
      return;
  }
}

}  // namespace

const HjsonNode* HjsonNode::find(std::string_view key) const {
  const auto entry = std::find_if(entries.begin(), entries.end(),
                                  [key](const HjsonEntry& e) { return e.key == key; });
  return entry == entries.end() ? nullptr : &entry->value;
}

HjsonDocument read_hjson(std::string_view text) {
  if (text.size() > kMaxHjsonBytes) {
    return refused({1, 1, "the text is larger than 4 MiB; a configuration has some kilobytes"});
  }
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (auto problem = bad_byte(text)) return refused(std::move(*problem));
  HjsonDocument document = Reader(text).read();
  // A placeholder without quotes is most often a syntax error; the cause is the template.
  if (!document.problems.empty()) {
    if (const auto placeholder = find_placeholder(text)) {
      return refused(Places(text).problem(placeholder->at, placeholder_message(*placeholder)));
    }
  }
  return document;
}

std::string to_json(const HjsonNode& node) {
  std::string text;
  append_json(text, node);
  return text;
}

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::kBool:
      return "true or false";
    case Kind::kNumber:
      return "a number";
    case Kind::kText:
      return "text";
    case Kind::kList:
      return "a list";
    case Kind::kObject:
      return "an object";
    case Kind::kNull:
      break;
  }
  return "null";
}

}  // namespace sluice::migrate
