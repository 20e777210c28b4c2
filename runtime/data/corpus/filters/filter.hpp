// A filter looks at one document: it keeps the document, changes its text, or rejects it by a named
// rule. A filter sees nothing but the document, so the order of documents and threads changes
// nothing. Filters are thread-safe.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/corpus/filters/text_parts.hpp"

namespace sluice {

// A document on its way through the filters. Words are split once for all filters.
class Document {
 public:
  Document(std::string text, std::optional<std::string> url)
      : text_(std::move(text)), url_(std::move(url)) {}
  Document(const Document&) = delete;
  Document& operator=(const Document&) = delete;

  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] const std::optional<std::string>& url() const { return url_; }
  [[nodiscard]] bool changed() const { return changed_; }
  void set_text(std::string text);
  // Valid until set_text().
  [[nodiscard]] const std::vector<Word>& words();
  [[nodiscard]] std::size_t characters();

 private:
  std::string text_;
  std::optional<std::string> url_;
  bool changed_ = false;
  std::optional<std::vector<Word>> words_;
  std::optional<std::size_t> characters_;
};

struct Rejection {
  std::string_view rule;  // of static storage
  double value = 0;       // what was compared with the rule's limit
};

class Filter {
 public:
  virtual ~Filter() = default;
  [[nodiscard]] virtual std::optional<Rejection> apply(Document& document) const = 0;
};

// A filter's name and options as the user writes them: "length:min_words=50,max_words=off". Options
// left out have their defaults.
struct FilterSpec {
  std::string name;
  std::map<std::string, std::string> options{};
};
// Throws ConfigError on a text of another form.
[[nodiscard]] FilterSpec parse_filter(std::string_view text);

// "off" turns a rule off. Lists are separated by '|'.
struct FilterOption {
  std::string_view name, standard, meaning;
};
struct FilterKind {
  std::string_view name, meaning;
  std::vector<FilterOption> options;
};
[[nodiscard]] const std::vector<FilterKind>& filter_kinds();

// Throws ConfigError if the filter, an option or a value is unknown; IoError if a file that an
// option names cannot be read.
[[nodiscard]] std::unique_ptr<Filter> make_filter(const FilterSpec& spec);

// Recipes: "openwebtext" (of Megatron's openwebtext tools), "fineweb", "none". Throws ConfigError
// on another name.
[[nodiscard]] std::vector<FilterSpec> filter_recipe(std::string_view name);

}  // namespace sluice
