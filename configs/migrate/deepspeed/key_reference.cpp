#include "configs/migrate/deepspeed/key_reference.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include "configs/migrate/deepspeed/deepspeed_keys.hpp"
#include "configs/value.hpp"

namespace sluice::migrate {
namespace {

constexpr std::string_view kHead =
    "# Keys of DeepSpeed's configuration\n\n"
    "What each key becomes, made from the program's own table: `sluice migrate --keys` writes this "
    "page.\n"
    "[migrate.md](migrate.md) explains the command and the classes. Defaults are those of "
    "DeepSpeed ";

// A cell of a Markdown table.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? "\\|" : std::string(1, c);
  return out;
}

std::string code(std::string_view text) { return "`" + cell(text) + "`"; }

std::string class_of(const DeepSpeedKey& key) {
  std::string name(class_name(key.kind));
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

std::string joined(const std::vector<std::string_view>& words) {
  std::string text;
  for (const std::string_view word : words) text += (text.empty() ? "" : ", ") + cell(word);
  return text;
}

// The note, the types that take the parameter, and the versions.
std::string meaning(const DeepSpeedKey& key) {
  std::string text = cell(key.note);
  const auto add = [&text](const std::string& words) {
    text += (text.empty() ? "" : "; ") + words;
  };
  if (!key.variants.empty()) add("of " + joined(key.variants));
  if (key.fills_auto) add("Hugging Face's Trainer fills \"auto\"");
  if (key.former) add(code(key.former->value) + " before " + key.former->until.text());
  if (key.former_rule) {
    const auto least = key.former_rule->least;
    add((least ? ">= " + format_number(*least) : "any number") + " before " +
        key.former_rule->until.text());
  }
  if (key.since) add("since " + key.since->text());
  if (key.removed) add("removed in " + key.removed->text());
  return text;
}

std::string row(const DeepSpeedKey& key) {
  std::string name = code(name_of(key.path));
  if (!key.alias.empty()) name += " or " + code(key.alias);
  const std::string fallback = key.fallback.empty() ? "" : code(key.fallback);
  return "| " + name + " | " + fallback + " | " + class_of(key) + " | " + meaning(key) + " |\n";
}

std::string_view rule_of(const DeepSpeedKey& section) {
  switch (section.unknown) {
    case Unknown::kRaises:
      return "Strict: an unknown key is an error.";
    case Unknown::kIgnores:
      return "Lenient: DeepSpeed ignores an unknown key without a message.";
    case Unknown::kTakes:
      return "Open: DeepSpeed passes an unknown key on.";
  }
  return "";
}

bool has_rows(std::string_view section) {
  const auto& keys = deepspeed_keys();
  return std::any_of(keys.begin(), keys.end(), [section](const DeepSpeedKey& key) {
    return section_of(key.path) == section && !key.path.empty();
  });
}

// A section whose keys the table has is a heading, not a row.
bool is_heading(const DeepSpeedKey& key) {
  return key.type == KeyType::kSection && has_rows(key.path);
}

std::string table_of(std::string_view section) {
  std::string rows;
  for (const DeepSpeedKey& key : deepspeed_keys()) {
    if (section_of(key.path) == section && !is_heading(key)) rows += row(key);
  }
  if (rows.empty()) return rows;
  return "| key | default | class | in Sluice |\n| --- | --- | --- | --- |\n" + rows;
}

std::string heading_of(const DeepSpeedKey& section) {
  std::string note = meaning(section);
  if (!note.empty()) note += ". ";
  return "\n## " + section.path + "\n\nClass: " + class_of(section) + ". " + note +
         std::string(rule_of(section)) + "\n\n";
}

}  // namespace

std::string deepspeed_keys_markdown() {
  std::string text = std::string(kHead) + kNewestDeepSpeed.text() +
                     ".\n\n## Top level\n\nLenient: DeepSpeed ignores an unknown key without a "
                     "message.\n\n" +
                     table_of("");
  for (const DeepSpeedKey& key : deepspeed_keys()) {
    if (is_heading(key)) text += heading_of(key) + table_of(key.path);
  }
  return text;
}

}  // namespace sluice::migrate
