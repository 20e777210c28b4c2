#include "configs/interpret.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "configs/interpolate.hpp"
#include "configs/suggest.hpp"
#include "configs/value.hpp"

namespace sluice {
namespace {

using Kind = YamlNode::Kind;

std::string found(const YamlNode& node) {
  switch (node.kind) {
    case Kind::kNull:
      return "found no value";
    case Kind::kScalar:
      return "found " + in_quotes(node.text);
    case Kind::kList:
      return "found a list";
    case Kind::kMap:
      return "found a map";
  }
  return "found nothing";
}

std::string list_names(const std::vector<std::string_view>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i)
    out += (i == 0 ? "" : ", ") + std::string(names[i]);
  return out;
}

std::vector<std::string_view> section_names() {
  std::vector<std::string_view> names;
  for (const Section& section : schema()) names.push_back(section.name);
  names.push_back("base");
  return names;
}

std::vector<std::string_view> key_names(const Section& section) {
  std::vector<std::string_view> names;
  for (const Key& key : section.keys) names.push_back(key.name);
  return names;
}

// The key of this very name in any section: "lr" -> "optimizer.lr".
std::optional<std::string> elsewhere(std::string_view name) {
  for (const Section& section : schema()) {
    for (const Key& key : section.keys) {
      if (key.name == name) return key.path();
    }
  }
  return std::nullopt;
}

std::string suggestion(const std::string& what, std::string_view key) {
  return what + "; did you mean '" + std::string(key) + "'?";
}

std::string unknown_section(std::string_view name) {
  const std::string what = "unknown section";
  if (name == "<<") return "merge keys are not read, use base:";
  if (find_key(name) != nullptr) {
    const std::size_t dot = name.find('.');
    return what + ", write " + std::string(name.substr(0, dot)) + ": {" +
           std::string(name.substr(dot + 1)) + ": ...}";
  }
  if (const auto key = key_for_foreign(name)) return suggestion(what, *key);
  if (const auto near = nearest(name, section_names())) return suggestion(what, *near);
  if (const auto key = elsewhere(name)) return suggestion(what, *key);
  return what + ", expected one of " + list_names(section_names());
}

std::string unknown_key(const Section& section, std::string_view name) {
  const std::string what = "unknown key";
  if (name == "<<") return "merge keys are not read, use base:";
  if (const auto key = elsewhere(name)) return suggestion(what, *key);
  if (const auto key = key_for_foreign(name)) return suggestion(what, *key);
  if (const auto near = nearest(name, key_names(section))) return suggestion(what, *near);
  return what + ", expected one of " + list_names(key_names(section));
}

std::string unknown_field(const std::vector<RecordField>& fields, std::string_view name) {
  std::vector<std::string_view> names;
  for (const RecordField& field : fields) names.push_back(field.name);
  if (const auto near = nearest(name, names)) return suggestion("unknown key", *near);
  return "unknown key, expected one of " + list_names(names);
}

// Reports a name that stands a second time in one map.
class SeenNames {
 public:
  void see(const DocumentSource& source, const YamlNode& key, const std::string& path,
           Problems& problems) {
    const auto [first, is_new] = lines_.emplace(key.text, key.line);
    if (is_new) return;
    problems.add(source.place(key), path,
                 source.is_set ? "given twice"
                               : "given twice, first in line " + std::to_string(first->second));
  }

 private:
  std::map<std::string, int> lines_;
};

// Reads the values of one section.
class SectionReader {
 public:
  SectionReader(const DocumentSource& source, const Section& section, GivenValues& values,
                Problems& problems)
      : source_(source), section_(section), values_(values), problems_(problems) {}

  void read(const YamlNode& map) {
    SeenNames seen;
    for (const YamlEntry& entry : map.entries) {
      const std::string path = std::string(section_.name) + "." + printable(entry.key.text);
      seen.see(source_, entry.key, path, problems_);
      const Key* key = find_key(section_.name, entry.key.text);
      if (key == nullptr) {
        problems_.add(source_.place(entry.key), path, unknown_key(section_, entry.key.text));
      } else {
        read_key(*key, entry);
      }
    }
  }

 private:
  // A place for one value: a key, or a field of a map in a list.
  struct Target {
    std::string path;  // in messages: "data.blend[0].weight"
    const Rules& rules;
  };

  void read_key(const Key& key, const YamlEntry& entry) {
    variables_.clear();
    std::optional<Value> value = read_value({key.path(), key.rules}, entry);
    if (!value) return;
    Origin origin = source_.at(entry.value.line, entry.value.column);
    origin.variables = variables_;
    values_.insert_or_assign(key.path(), GivenValue{std::move(*value), std::move(origin)});
  }

  std::optional<Value> read_value(const Target& target, const YamlEntry& entry) {
    const YamlNode& node = entry.value;
    const KeyType type = target.rules.type;
    if (node.kind == Kind::kScalar && type == KeyType::kPaths) {
      const std::optional<Value> text = read_text(target, node);
      if (!text) return std::nullopt;
      return Value(std::vector<std::string>{std::get<std::string>(*text)});
    }
    if (node.kind == Kind::kScalar && !is_list_type(type)) return read_text(target, node);
    if (node.kind == Kind::kList && type == KeyType::kRecords) return read_records(target, node);
    if (node.kind == Kind::kList && is_list_type(type)) return read_list(target, node);
    // An absent value's own place is that of whatever comes next.
    mistake(target, node.kind == Kind::kNull ? entry.key : node,
            found(node) + ", expected " + expected(target.rules));
    return std::nullopt;
  }

  std::optional<Value> read_list(const Target& target, const YamlNode& list) {
    const Rules& rules = target.rules;
    std::vector<double> numbers;
    std::vector<std::int64_t> counts;
    std::vector<std::string> texts;
    std::size_t good = 0;
    for (const YamlNode& item : list.items) {
      std::optional<Value> value;
      if (item.kind == Kind::kScalar) {
        value = read_text(target, item);
      } else {
        mistake(target, item.kind == Kind::kNull ? list : item,
                found(item) + ", expected " + expected_element(rules));
      }
      if (!value) continue;
      ++good;
      if (const auto* number = std::get_if<double>(&*value)) numbers.push_back(*number);
      if (const auto* count = std::get_if<std::int64_t>(&*value)) counts.push_back(*count);
      if (auto* text = std::get_if<std::string>(&*value)) texts.push_back(std::move(*text));
    }
    const std::size_t items = list.items.size();
    if (rules.type == KeyType::kFloats &&
        (items > rules.length || items + rules.optional < rules.length)) {
      mistake(target, list,
              "found a list of " + std::to_string(items) + ", expected " + expected(rules));
      return std::nullopt;
    }
    if (good != items) return std::nullopt;
    if (rules.type == KeyType::kFloats) return Value(std::move(numbers));
    if (rules.type == KeyType::kCounts) return Value(std::move(counts));
    return Value(std::move(texts));
  }

  std::optional<Value> read_records(const Target& target, const YamlNode& list) {
    std::vector<Record> records;
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      const YamlNode& item = list.items[i];
      const Target here{target.path + "[" + std::to_string(i) + "]", target.rules};
      if (item.kind != Kind::kMap) {
        mistake(here, item.kind == Kind::kNull ? list : item,
                found(item) + ", expected " + expected_element(target.rules));
      } else if (std::optional<Record> record = read_record(here, item)) {
        records.push_back(std::move(*record));
      }
    }
    if (records.size() != list.items.size()) return std::nullopt;
    return Value(std::move(records));
  }

  std::optional<Record> read_record(const Target& target, const YamlNode& map) {
    const std::vector<RecordField>& fields = *target.rules.fields;
    Record record;
    for (const RecordField& field : fields) record.values.push_back(field.fallback);
    SeenNames seen;
    std::vector<bool> given(fields.size());
    bool good = true;
    for (const YamlEntry& entry : map.entries) {
      const std::string path = target.path + "." + printable(entry.key.text);
      seen.see(source_, entry.key, path, problems_);
      const auto field = std::find_if(fields.begin(), fields.end(), [&](const RecordField& known) {
        return known.name == entry.key.text;
      });
      std::optional<Value> value;
      if (field == fields.end()) {
        problems_.add(source_.place(entry.key), path, unknown_field(fields, entry.key.text));
      } else {
        value = read_value({path, field->rules}, entry);
      }
      good = good && value.has_value();
      if (field == fields.end()) continue;
      const auto at = static_cast<std::size_t>(field - fields.begin());
      given[at] = true;
      if (value) record.values[at] = std::move(*value);
    }
    for (std::size_t f = 0; f < fields.size(); ++f) {
      if (!fields[f].required || given[f]) continue;
      mistake(target, map,
              "lacks '" + std::string(fields[f].name) + "', expected " +
                  expected_element(target.rules));
      good = false;
    }
    return good ? std::optional<Record>(std::move(record)) : std::nullopt;
  }

  std::optional<Value> read_text(const Target& target, const YamlNode& node) {
    const Interpolated text = interpolate(node.text);
    variables_.insert(variables_.end(), text.names.begin(), text.names.end());
    for (const std::string& what : text.problems) mistake(target, node, what);
    if (!text.problems.empty()) return std::nullopt;
    auto read = read_scalar(target.rules, text.text);
    if (const auto* mismatch = std::get_if<Mismatch>(&read)) {
      mistake(target, node,
              text.names.empty()
                  ? mismatch->what
                  : mismatch->what + " (the text is from " + in_quotes(node.text) + ")");
      return std::nullopt;
    }
    return std::get<Value>(std::move(read));
  }

  void mistake(const Target& target, const YamlNode& at, const std::string& what) {
    problems_.add(source_.place(at), target.path, what);
  }

  const DocumentSource& source_;
  const Section& section_;
  GivenValues& values_;
  Problems& problems_;
  std::vector<std::string> variables_;  // that went into the key being read
};

}  // namespace

Origin DocumentSource::at(int line, int column) const {
  return {is_set, text, is_set ? 0 : line, is_set ? 0 : column, {}};
}

std::string DocumentSource::place(const YamlNode& node) const {
  return at(node.line, node.column).place();
}

std::optional<BaseReference> find_base(const DocumentSource& source, const YamlNode& root,
                                       Problems& problems) {
  for (const YamlEntry& entry : root.entries) {
    if (entry.key.text != "base") continue;
    const YamlNode& at = entry.value.kind == Kind::kNull ? entry.key : entry.value;
    if (source.is_set) {
      problems.add(source.place(at), "base", "is read from a file only");
      return std::nullopt;
    }
    if (entry.value.kind != Kind::kScalar || entry.value.text.empty()) {
      problems.add(source.place(at), "base", found(entry.value) + ", expected a file");
      return std::nullopt;
    }
    const Interpolated text = interpolate(entry.value.text);
    for (const std::string& what : text.problems) problems.add(source.place(at), "base", what);
    if (!text.problems.empty()) return std::nullopt;
    return BaseReference{text.text, source.place(at)};
  }
  return std::nullopt;
}

void interpret_document(const DocumentSource& source, const YamlNode& root, GivenValues& values,
                        Problems& problems) {
  SeenNames seen;
  for (const YamlEntry& entry : root.entries) {
    const std::string name = printable(entry.key.text);
    seen.see(source, entry.key, name, problems);
    if (entry.key.text == "base") continue;
    const Section* section = find_section(entry.key.text);
    if (section == nullptr) {
      problems.add(source.place(entry.key), name, unknown_section(entry.key.text));
    } else if (entry.value.kind == Kind::kMap) {
      SectionReader(source, *section, values, problems).read(entry.value);
    } else if (entry.value.kind != Kind::kNull) {  // a section with all its keys commented out
      problems.add(source.place(entry.value), name,
                   found(entry.value) + ", expected a map of " + list_names(key_names(*section)));
    }
  }
}

}  // namespace sluice
