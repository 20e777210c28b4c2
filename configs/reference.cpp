#include "configs/reference.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "configs/suggest.hpp"
#include "configs/value.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice {
namespace {

constexpr std::size_t kWidth = 80;

// Words in lines of kWidth, the first after `used` columns, the others indented.
std::string wrapped(const std::string& words, std::size_t used, std::size_t indent) {
  std::string text;
  for (std::size_t at = 0; at < words.size();) {
    const std::size_t end = std::min(words.find(' ', at), words.size());
    if (used > indent && used + 1 + (end - at) > kWidth) {
      text += "\n" + std::string(indent, ' ');
      used = indent;
    } else if (at > 0) {
      text += ' ';
      ++used;
    }
    text += words.substr(at, end - at);
    used += end - at;
    at = end + 1;
  }
  return text + "\n";
}

std::string default_of(const Key& key) {
  static const RunConfig defaults{};
  return write_value(key.rules, key.get(defaults));
}

std::string unit_of(KeyType type) {
  switch (type) {
    case KeyType::kBytes:
      return "bytes; kB, MB, GB are powers of 1000, KiB, MiB, GiB of 1024";
    case KeyType::kSeconds:
      return "seconds; s, m and h are read";
    case KeyType::kInterval:
      return "optimizer steps, or a time with s, min or h";
    case KeyType::kSteps:
      return "optimizer steps, or a share of train.steps with %";
    case KeyType::kRate:
      return "learning rate, or a share of optimizer.lr with %";
    default:
      return "";
  }
}

// All that a key takes. A list of maps names each field with its values and its default.
std::string values_of(const Rules& rules) {
  if (rules.type != KeyType::kRecords) return expected(rules);
  std::string text = "a list of maps:";
  const char* separator = " ";
  for (const RecordField& field : *rules.fields) {
    text += separator + std::string(field.name) + " (" + expected(field.rules) +
            (field.required ? "" : "; default " + write_value(field.rules, field.fallback)) + ")";
    separator = ", ";
  }
  return text;
}

std::string explain_key(const Key& key) {
  constexpr std::size_t kColumn = 10;
  std::string text = wrapped(key.path() + ": " + std::string(key.doc), 0, 2);
  const auto add = [&](const std::string& name, const std::string& words) {
    if (words.empty()) return;
    const std::string head = "  " + name;
    text += head + std::string(kColumn + 2 - head.size(), ' ') +
            wrapped(words, kColumn + 2, kColumn + 2);
  };
  add("default", default_of(key));
  add("values", values_of(key.rules));
  add("unit", unit_of(key.rules.type));
  add("effect", key.when.empty() ? "always" : "only where " + std::string(key.when));
  add("example",
      std::string(key.section) + ": {" + std::string(key.name) + ": " + example_of(key) + "}");
  return text;
}

std::string explain_section(const Section& section) {
  constexpr std::size_t kColumn = 28;
  std::string text = wrapped(std::string(section.name) + ": " + std::string(section.doc), 0, 2);
  for (const Key& key : section.keys) {
    std::string head = "  " + std::string(key.name) + ": " + default_of(key);
    head.append(head.size() + 2 > kColumn ? 2 : kColumn - head.size(), ' ');
    text += head + wrapped(std::string(key.doc), head.size(), kColumn);
  }
  return text + "Values are the defaults. `sluice explain " + std::string(section.name) + "." +
         std::string(section.keys.front().name) + "` says all of one key.\n";
}

std::string explain_all() {
  constexpr std::size_t kColumn = 14;
  std::string text;
  const auto add = [&](std::string_view name, std::string_view doc) {
    std::string head = "  " + std::string(name);
    head.append(kColumn - head.size(), ' ');
    text += head + wrapped(std::string(doc), kColumn, kColumn);
  };
  for (const Section& section : schema()) add(section.name, section.doc);
  add("base", kBaseDoc);
  return text +
         "`sluice explain SECTION` lists its keys, `sluice explain SECTION.KEY` says all of one.\n";
}

std::string unknown(std::string_view name) {
  std::vector<std::string> paths;
  for (const Section& section : schema()) {
    for (const Key& key : section.keys) paths.push_back(key.path());
  }
  std::vector<std::string_view> names(paths.begin(), paths.end());
  for (const Section& section : schema()) {
    names.push_back(section.name);
    for (const Key& key : section.keys) names.push_back(key.name);
  }
  const std::string what = "explain: there is no key or section " + in_quotes(name);
  const auto key = key_for_foreign(name.substr(name.rfind('.') + 1));
  if (const auto near = key ? key : nearest(name, names)) {
    return what + "; did you mean '" + std::string(*near) + "'?";
  }
  return what + "; `sluice explain` lists the sections";
}

// A cell of a Markdown table.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '|' ? "\\|" : std::string(1, c);
  return out;
}

}  // namespace

std::string example_of(const Key& key) {
  if (!key.example.empty()) return std::string(key.example);
  const Value value = key.get(RunConfig{});
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "false" : "true";
  if (key.rules.type != KeyType::kEnum) return default_of(key);
  const auto chosen = static_cast<std::size_t>(std::get<std::int64_t>(value));
  return std::string(key.rules.choices[(chosen + 1) % key.rules.choices.size()]);
}

std::string explain(std::string_view name) {
  if (name.empty()) return explain_all();
  if (name == "base") {
    return wrapped("base: " + std::string(kBaseDoc), 0, 2) + "  example   base: file.yaml\n";
  }
  if (const Section* section = find_section(name)) return explain_section(*section);
  if (const Key* key = find_key(name)) return explain_key(*key);
  std::string text;
  for (const Section& section : schema()) {
    const Key* key = find_key(section.name, name);
    if (key != nullptr) text += explain_key(*key);
  }
  if (text.empty()) throw ConfigError(unknown(name));
  return text;
}

std::string reference_markdown() {
  std::string text =
      "# Configuration\n\n"
      "Every key of a configuration file, made from the program's own table: `sluice explain\n"
      "--markdown` writes this page, `sluice explain SECTION.KEY` prints a part of it. Sections "
      "and\n"
      "keys may stand in any order; a key that is left out has its default. `--set "
      "section.key=value`\n"
      "overrides a file. A size is read with its unit (`24GiB`, `512MiB`), a count as `50k` or "
      "`1e9`,\n"
      "a time as `30s`, `5m` or `2h`. Where a key has an effect under a condition only, a\n"
      "configuration in which it has none gets a note, or an error where the run would do "
      "something\n"
      "else than the key says. Conditions on the machine, the ranks, the data or the command give\n"
      "no note.\n\n"
      "`base: file.yaml` at the top: " +
      std::string(kBaseDoc) + "\n";
  for (const Section& section : schema()) {
    text += "\n## " + std::string(section.name) + "\n\n" + std::string(section.doc) + "\n\n" +
            "| key | default | values | example | meaning |\n| --- | --- | --- | --- | --- |\n";
    for (const Key& key : section.keys) {
      std::string meaning(key.doc);
      if (!key.when.empty()) meaning += " Only where " + std::string(key.when) + ".";
      text += "| `" + std::string(key.name) + "` | `" + cell(default_of(key)) + "` | " +
              cell(values_of(key.rules)) + " | `" + cell(example_of(key)) + "` | " + cell(meaning) +
              " |\n";
    }
  }
  return text;
}

}  // namespace sluice
