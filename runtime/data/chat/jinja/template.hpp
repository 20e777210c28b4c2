// A template in the language of chat templates: the part of Jinja that they use, with the results
// of jinja2 (trim_blocks, lstrip_blocks, the functions and the {% generation %} block of
// Hugging Face's transformers).
//
// Not in the language: inheritance, import, include, recursive loops, "*" before arguments, string
// formatting by "%", keys of objects that are not strings. Each one is an error that names it.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/chat/jinja/value.hpp"

namespace sluice::jinja {

struct Syntax;

struct RenderOptions {
  std::int64_t steps = std::int64_t{1} << 23U;  // a few seconds
  std::size_t longest_bytes = std::size_t{64} << 20U;
  std::tm now{};  // of strftime_now
};

// Bytes [begin, end) of a text.
struct Span {
  std::size_t begin = 0, end = 0;
  friend bool operator==(const Span&, const Span&) = default;
};

struct Rendered {
  std::string text;
  std::vector<Span> generated;  // the text of {% generation %} blocks, in order
};

// Immutable; thread-safe.
class Template {
 public:
  explicit Template(const std::string& source);  // throws ConfigError with the line
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  [[nodiscard]] bool has_generation() const;  // a {% generation %} block
  // Throws RaisedError if the template refuses the values, RenderError if it fails, with the line.
  [[nodiscard]] Rendered render(const Dict& variables, const RenderOptions& options) const;

 private:
  std::unique_ptr<const Syntax> syntax_;
};

}  // namespace sluice::jinja
