#include "configs/migrate/peers/toml_reader.hpp"

#include <cmath>
#include <sstream>
#include <string>
#include <utility>

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include "configs/value.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

void place(HjsonNode& node, const toml::source_region& source) {
  node.line = static_cast<int>(source.begin.line);
  node.column = static_cast<int>(source.begin.column);
}

HjsonNode to_node(const toml::node& from);

HjsonNode to_object(const toml::table& table) {
  HjsonNode node;
  node.kind = HjsonNode::Kind::kObject;
  for (const auto& [key, value] : table) {
    HjsonEntry entry;
    entry.key = std::string(key.str());
    entry.line = static_cast<int>(key.source().begin.line);
    entry.column = static_cast<int>(key.source().begin.column);
    entry.value = to_node(value);
    node.entries.push_back(std::move(entry));
  }
  return node;
}

HjsonNode to_number(double value, std::string text) {
  HjsonNode node;
  node.kind = std::isfinite(value) ? HjsonNode::Kind::kNumber : HjsonNode::Kind::kText;
  node.number = value;
  node.text = std::move(text);
  return node;
}

HjsonNode to_node(const toml::node& from) {
  HjsonNode node;
  if (const auto* const table = from.as_table()) {
    node = to_object(*table);
  } else if (const auto* const array = from.as_array()) {
    node.kind = HjsonNode::Kind::kList;
    for (const toml::node& item : *array) node.items.push_back(to_node(item));
  } else if (const auto* const flag = from.as_boolean()) {
    node.kind = HjsonNode::Kind::kBool;
    node.boolean = flag->get();
  } else if (const auto* const integer = from.as_integer()) {
    node = to_number(static_cast<double>(integer->get()), std::to_string(integer->get()));
    node.integer = integer->get();
  } else if (const auto* const real = from.as_floating_point()) {
    node = to_number(real->get(), format_number(real->get()));
    node.is_float = true;
  } else if (const auto* const text = from.as_string()) {
    node.kind = HjsonNode::Kind::kText;
    node.text = text->get();
  } else {
    std::ostringstream out;
    from.visit([&](const auto& value) {
      if constexpr (toml::is_value<decltype(value)>) out << value.get();
    });
    node.kind = HjsonNode::Kind::kText;
    node.text = out.str();
  }
  place(node, from.source());
  return node;
}

}  // namespace

HjsonDocument read_toml(std::string_view text) {
  HjsonDocument document;
  if (text.size() > kMaxTomlBytes) {
    document.problems.push_back({1, 1, "the file has more than 1 MiB; give a shorter one"});
    return document;
  }
  const toml::parse_result result = toml::parse(text);
  if (!result) {
    const toml::parse_error& error = result.error();
    document.problems.push_back(
        {static_cast<int>(error.source().begin.line), static_cast<int>(error.source().begin.column),
         "no TOML: " + printable(error.description(), 200) + "; correct the file"});
    return document;
  }
  document.root = to_object(result.table());
  return document;
}

}  // namespace sluice::migrate
