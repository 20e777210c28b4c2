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

// Where a document comes from. Makes the places in messages and origins.
struct DocumentSource {
  bool is_set = false;
  std::string text;  // the file's path, or the --set argument

  [[nodiscard]] Origin at(int line, int column) const;
  [[nodiscard]] std::string place(const YamlNode& node) const;
};

// The `base:` line of a document.
struct BaseReference {
  std::string path;   // after interpolation; relative to the document's folder
  std::string place;  // of the value, for messages
};
// nullopt if the document has no `base:`, or if the value is a mistake, which goes to `problems`.
[[nodiscard]] std::optional<BaseReference> find_base(const DocumentSource& source,
                                                     const YamlNode& root, Problems& problems);

// Adds the values of a document, whose root must be a map, to `values`, and its mistakes to
// `problems`.
void interpret_document(const DocumentSource& source, const YamlNode& root, GivenValues& values,
                        Problems& problems);

}  // namespace sluice
