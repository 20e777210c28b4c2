#include "tests/configs/migrate/real/key_report.hpp"

#include <algorithm>
#include <sstream>

namespace sluice::testing {
namespace {

using migrate::MigratedKey;
using migrate::Migration;

constexpr std::string_view kTitle = "=== ";
constexpr std::string_view kKey = "  ";
constexpr std::string_view kMeaning = "      ";
constexpr std::string_view kDefault = "(default) ";
constexpr std::string_view kAsks = "asks for ";
constexpr std::string_view kError = "error: ";
constexpr std::string_view kNote = "note: ";

std::string key_lines(const MigratedKey& key) {
  std::string text(kKey);
  if (!key.is_written) text += kDefault;
  text += key.path + " = " + key.value + "\n" + std::string(kMeaning);
  text += migrate::class_name(key.kind);
  if (key.stops) text += ", stops";
  for (const migrate::Setting& setting : key.to) {
    text += ", " + setting.key + ": " + setting.value;
  }
  // A mapped key whose setting says all needs no sentence.
  const bool speaks = key.kind != migrate::KeyClass::kMapped || key.to.empty();
  if (speaks && !key.note.empty()) text += "; " + key.note;
  return text + "\n";
}

// "path: cause; remedy" without "file:line:column: ", which depends on the file's layout.
std::string without_place(const migrate::MigrationError& error, const std::string& file) {
  if (!error.text.starts_with(file + ":")) return error.text;
  const std::size_t end = error.text.find_first_not_of("0123456789: ", file.size());
  return error.text.substr(std::min(end, error.text.size()));
}

// An object under construction; `value` is JSON of a leaf.
struct Branch {
  std::string name;
  std::string value;
  std::vector<Branch> branches{};

  Branch& child(const std::string& child_name) {
    const auto found = std::find_if(branches.begin(), branches.end(),
                                    [&](const Branch& b) { return b.name == child_name; });
    if (found != branches.end()) return *found;
    return branches.emplace_back(Branch{child_name, ""});
  }

  [[nodiscard]] std::string json() const {
    if (!value.empty()) return value;
    std::string text = "{";
    for (const Branch& branch : branches) {
      text += (text.size() > 1 ? ",\n\"" : "\n\"") + branch.name + "\": " + branch.json();
    }
    return text + "\n}";
  }
};

// True for the line of a key that the file has.
bool is_key_line(const std::string& line) {
  if (!line.starts_with(kKey) || line.starts_with(kMeaning)) return false;
  const std::string_view rest = std::string_view(line).substr(kKey.size());
  return !rest.starts_with(kDefault) && !rest.starts_with(kAsks) && !rest.starts_with(kError) &&
         !rest.starts_with(kNote);
}

}  // namespace

std::string report_title(const std::string& name, int world,
                         const migrate::DeepSpeedVersion& version) {
  return std::string(kTitle) + name + ", " + std::to_string(world) + " ranks, DeepSpeed " +
         version.text();
}

std::string key_report(const std::vector<migrate::HjsonProblem>& problems,
                       const Migration& migration) {
  std::string text;
  for (const migrate::HjsonProblem& problem : problems)
    text += std::string(kKey) + std::string(kError) + problem.what + "\n";
  if (!problems.empty()) return text;
  for (const MigratedKey& key : migration.keys) text += key_lines(key);
  for (const migrate::MissingValue& missing : migration.missing) {
    text += std::string(kKey) + std::string(kAsks) + missing.path + ": " + missing.give + "\n";
  }
  for (const migrate::MigrationError& error : migration.errors) {
    text += std::string(kKey) + std::string(kError) + without_place(error, migration.file) + "\n";
  }
  for (const std::string& note : migration.notes)
    text += std::string(kKey) + std::string(kNote) + note + "\n";
  return text;
}

std::map<std::string, std::string> split_reports(const std::string& text) {
  std::map<std::string, std::string> reports;
  std::string* report = nullptr;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(kTitle)) {
      report = &reports[line];
    } else if (report != nullptr && !line.empty()) {
      *report += line + "\n";
    }
  }
  return reports;
}

std::string config_of(const std::string& report) {
  Branch root;
  std::istringstream in(report);
  for (std::string line; std::getline(in, line);) {
    if (!is_key_line(line)) continue;
    const std::size_t equals = std::min(line.find(" = "), line.size());
    std::istringstream path(line.substr(kKey.size(), equals - kKey.size()));
    Branch* branch = &root;
    for (std::string name; std::getline(path, name, '.');) branch = &branch->child(name);
    branch->value = line.substr(std::min(equals + 3, line.size()));
  }
  return root.json();
}

}  // namespace sluice::testing
