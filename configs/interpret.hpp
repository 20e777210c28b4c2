// Interprets one document (a file, or a --set argument in the form of one) by the schema.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "configs/problems.hpp"
#include "configs/reader.hpp"
#include "configs/schema.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice {

struct GivenValue {
  Value value;
  Origin origin;
};
// By "section.key"; a later document's value replaces an earlier one's.
using GivenValues = std::map<std::string, GivenValue, std::less<>>;

// The parts of places in messages and origins.
struct DocumentSource {
  bool is_set = false;
  std::string text;  // the file's path, or the --set argument

  [[nodiscard]] Origin at(int line, int column) const;
  [[nodiscard]] std::string place(const YamlNode& node) const;
};

// The `base:` of a document: its node and its interpolated text. nullopt if absent, or if it is a
// mistake (which is added to `problems`).
struct BaseReference {
  std::string path;
  std::string place;
};
[[nodiscard]] std::optional<BaseReference> find_base(const DocumentSource& source,
                                                     const YamlNode& root, Problems& problems);

// Adds the values of a document, whose root must be a map, to `values`, and its mistakes to
// `problems`.
void interpret_document(const DocumentSource& source, const YamlNode& root, GivenValues& values,
                        Problems& problems);

}  // namespace sluice
