#include "configs/migrate/report.hpp"

#include <algorithm>
#include <array>

#include "base/bytes.hpp"
#include "configs/migrate/write_yaml.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

constexpr std::size_t kMostErrors = 100;
constexpr std::size_t kMostValue = 40;
constexpr std::size_t kWidestPath = 56;

struct Group {
  KeyClass kind;
  std::string_view title;
  std::string_view colour;
  bool stops = false;
};
constexpr std::array<Group, 7> kGroups{{
    {KeyClass::kMapped, "mapped", "32"},
    {KeyClass::kChanged, "mapped with another meaning", "33"},
    {KeyClass::kNotNeeded, "not needed here", "36"},
    {KeyClass::kRefused, "not supported, at their defaults: nothing is lost", "36"},
    {KeyClass::kRefused, "not supported", "31", true},
    {KeyClass::kIgnored, "ignored by the source itself", "90"},
    {KeyClass::kRemoved, "removed by the source", "31"},
}};

// Ranks of one host of the result; 1 where they are not known.
std::int64_t ranks_of_host(const Migration& migration) {
  for (const ConfigLine& line : migration.lines) {
    const std::string& value = line.setting.value;
    const bool is_count = !value.empty() && value.size() < 7 &&
                          value.find_first_not_of("0123456789") == std::string::npos;
    if (line.setting.key == "launch.nproc" && is_count) return std::stoi(value);
  }
  return 1;
}

class Text {
 public:
  Text(const Migration& migration, bool colours) : migration_(migration), colours_(colours) {}

  std::string whole() {
    const auto written = std::count_if(migration_.keys.begin(), migration_.keys.end(),
                                       [](const MigratedKey& key) { return key.is_written; });
    text_ = printable(migration_.file, 200) + ": " + migration_.source + ", " +
            std::to_string(written) + (written == 1 ? " key\n" : " keys\n");
    width_ = widest_path();
    for (const Group& group : kGroups) keys_of(group);
    defaults();
    rest();
    return text_;
  }

 private:
  [[nodiscard]] std::size_t widest_path() const {
    std::size_t widest = 0;
    for (const MigratedKey& key : migration_.keys) {
      widest = std::max(widest, std::min(key.path.size(), kWidestPath));
    }
    return widest;
  }

  void title(std::string_view text, std::string_view colour) {
    text_ += "\n";
    if (colours_) text_ += "\x1b[1;" + std::string(colour) + "m";
    text_ += text;
    if (colours_) text_ += "\x1b[0m";
    text_ += "\n";
  }

  void key_lines(const MigratedKey& key) {
    std::string line = "  " + printable(key.path, 200);
    line.append(std::max(width_ + 4, line.size() + 2) - line.size(), ' ');
    line += printable(key.value, kMostValue);
    std::string arrow = "  ->  ";
    // The settings of a value that is still open follow from a default.
    const auto& missing = migration_.missing;
    const bool is_open = std::any_of(missing.begin(), missing.end(), [&](const MissingValue& open) {
      return open.path == key.path;
    });
    if (is_open) line += arrow + "to be given";
    for (const Setting& setting : is_open ? std::vector<Setting>() : key.to) {
      line += arrow + setting.key + ": " + printable(setting.value, kMostValue);
      arrow = ", ";
    }
    if (key.is_allowed) line += "  (allowed)";
    text_ += line + "\n";
    // A written key whose setting says all needs no sentence.
    const bool speaks = !key.is_written || key.kind != KeyClass::kMapped || key.to.empty();
    if (speaks && !key.note.empty()) text_ += "      " + key.note + "\n";
  }

  [[nodiscard]] bool has_error(const MigratedKey& key) const {
    return std::any_of(migration_.errors.begin(), migration_.errors.end(),
                       [&](const MigrationError& error) { return error.path == key.path; });
  }

  void keys_of(const Group& group) {
    const auto belongs = [&](const MigratedKey& key) {
      if (key.kind != group.kind || !key.is_written) return false;
      return key.kind != KeyClass::kRefused || (key.stops || has_error(key)) == group.stops;
    };
    const auto count = std::count_if(migration_.keys.begin(), migration_.keys.end(), belongs);
    if (count == 0) return;
    title(std::string(group.title) + " (" + std::to_string(count) + ")", group.colour);
    for (const MigratedKey& key : migration_.keys) {
      if (belongs(key)) key_lines(key);
    }
  }

  void defaults() {
    const auto count = std::count_if(migration_.keys.begin(), migration_.keys.end(),
                                     [](const MigratedKey& key) { return !key.is_written; });
    if (count == 0) return;
    title("defaults that matter (" + std::to_string(count) + ")", "35");
    for (const MigratedKey& key : migration_.keys) {
      if (!key.is_written) key_lines(key);
    }
  }

  void memory() {
    if (migration_.memory.empty()) return;
    title("memory of a rank, by the plan", "1");
    const std::int64_t ranks = ranks_of_host(migration_);
    for (const PlannedMemory& plan : migration_.memory) {
      std::string line = "  " + plan.of;
      line.append(std::max<std::size_t>(44, line.size() + 2) - line.size(), ' ');
      if (plan.problem.empty()) {
        line += format_bytes(plan.device) + " device, " + format_bytes(plan.host) + " host";
        if (ranks > 1 && plan.host > 0) {
          line += " (" + format_bytes(plan.host * ranks) + " for " + std::to_string(ranks) +
                  " ranks of a host)";
        }
        if (plan.nvme > 0) line += ", " + format_bytes(plan.nvme) + " nvme";
      } else {
        line += "no plan: " + plan.problem;
      }
      text_ += line + "\n";
    }
  }

  void settings() {
    std::string lines;
    for (const ConfigLine& line : migration_.lines) {
      if (line.origin != "--set") continue;
      lines += "  " + line.setting.key + ": " + printable(line.setting.value, kMostValue) + "\n";
    }
    if (lines.empty()) return;
    title("set by --set", "1");
    text_ += lines;
  }

  void rest() {
    settings();
    memory();
    if (!migration_.commands.empty()) title("start", "1");
    for (const std::string& command : migration_.commands) text_ += "  " + command + "\n";
    if (!migration_.notes.empty()) title("notes", "1");
    for (const std::string& note : migration_.notes) text_ += "  " + note + "\n";
  }

  const Migration& migration_;
  bool colours_;
  std::size_t width_ = 0;
  std::string text_;
};

}  // namespace

std::string report_text(const Migration& migration, bool colours) {
  return Text(migration, colours).whole();
}

std::string error_text(const Migration& migration) {
  std::string text;
  std::size_t count = 0;
  for (const MigrationError& error : migration.errors) {
    if (count++ < kMostErrors) text += error.text + "\n";
  }
  if (count > kMostErrors)
    text += "and " + std::to_string(count - kMostErrors) + " more mistakes\n";
  if (migration.missing.empty()) return text;
  text += printable(migration.file, 200) + " leaves open what a run needs; give:\n";
  for (const MissingValue& missing : migration.missing) {
    text += "  " + printable(missing.path, 200) + ": " + missing.give + "\n";
  }
  return text;
}

}  // namespace sluice::migrate
