// A YAML tree as typed values. Pure functions; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "configs/migrate/hjson_reader.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {

// Words become the values of YAML 1.1: yes, no, on, off, true, false; null and ~; numbers. Quotes
// make no difference, because the tree does not keep them. `text` has the word as written, of a
// number its form in JSON. Appends a problem for each key that stands in its map twice.
[[nodiscard]] HjsonNode typed_values(const YamlNode& node, std::vector<YamlProblem>& problems);

// The value of a word: a number, true or false, null, else text.
[[nodiscard]] HjsonNode typed_word(std::string_view word);

}  // namespace sluice::migrate
