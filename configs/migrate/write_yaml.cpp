#include "configs/migrate/write_yaml.hpp"

#include <algorithm>
#include <filesystem>

#include "base/error.hpp"
#include "configs/reader.hpp"
#include "configs/schema.hpp"
#include "configs/validate.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

constexpr std::size_t kCommentColumn = 36;

// Blanks load as they stand: the run is GPT-2 small's until the user fills them in.
constexpr std::string_view kModelBlank =
    "  # FILL IN the model: `sluice migrate --model DIR` takes a Hugging Face folder; or give its\n"
    "  # type and sizes (`sluice explain model`). Until then GPT-2 small stands here.\n"
    "  # from: path/to/huggingface_folder\n"
    "  type: gpt2\n"
    "  vocab: 50257\n";
constexpr std::string_view kDataBlank =
    "  # FILL IN the data: text, or token files (Megatron's .bin and .idx) as train and valid.\n"
    "  # text: [\"corpus/**/*.jsonl\"]\n"
    "  # tokenizer: path/to/huggingface_folder\n";

std::string comment_text(std::string_view text) { return printable(text, 160); }

LoadedConfig load_lines(const std::vector<ConfigLine>& lines) {
  std::string text = "train:\n";
  std::vector<std::string> settings;
  for (const ConfigLine& line : lines) {
    settings.push_back(line.setting.key + "=" + line.setting.value);
  }
  return load_config_text("", text, settings);
}

std::string header(const Migration& migration) {
  std::string text = "# Carried over from " + comment_text(migration.file) + " (" +
                     migration.source + ") by `sluice migrate`.\n";
  for (const MigratedKey& key : migration.keys) {
    if (!key.is_allowed) continue;
    text += "# Allowed, and without effect here: " + comment_text(key.path) + " " +
            comment_text(key.value) + "\n";
  }
  for (const std::string& command : migration.commands) {
    text += "# Start: " + comment_text(command) + "\n";
  }
  return text;
}

std::string yaml_line(const ConfigLine& line, std::string_view name) {
  std::string text = "  " + std::string(name) + ": " + line.setting.value;
  if (line.origin.empty()) return text + "\n";
  text.append(std::max(kCommentColumn, text.size() + 2) - text.size(), ' ');
  return text + "# " + comment_text(line.origin) + "\n";
}

bool is_of(const ConfigLine& line, std::string_view section) {
  return std::string_view(line.setting.key).starts_with(std::string(section) + ".");
}

}  // namespace

std::vector<ConfigLine> lines_to_write(const Migration& migration) {
  const RunConfig run = load_lines(migration.lines).run;
  std::vector<ConfigLine> lines;
  for (const Section& section : schema()) {
    for (const Key& key : section.keys) {
      const auto line =
          std::find_if(migration.lines.begin(), migration.lines.end(),
                       [&](const ConfigLine& given) { return given.setting.key == key.path(); });
      if (line == migration.lines.end() || key.get(run) == key.get(RunConfig{})) continue;
      lines.push_back(*line);
    }
  }
  return lines;
}

Blanks blanks_of(const Migration& migration) {
  Blanks blanks{true, true};
  for (const ConfigLine& line : migration.lines) {
    if (is_of(line, "model")) blanks.model = false;
    if (line.setting.key == "data.text" || line.setting.key == "data.train") blanks.data = false;
  }
  return blanks;
}

std::string write_yaml(const Migration& migration) {
  const std::vector<ConfigLine> lines = lines_to_write(migration);
  const Blanks blanks = blanks_of(migration);
  std::string text = header(migration);
  for (const Section& section : schema()) {
    std::string body;
    if (section.name == "model" && blanks.model) body = kModelBlank;
    if (section.name == "data" && blanks.data) body = kDataBlank;
    for (const ConfigLine& line : lines) {
      if (!is_of(line, section.name)) continue;
      body += yaml_line(line, line.setting.key.substr(section.name.size() + 1));
    }
    if (!body.empty()) text += "\n" + std::string(section.name) + ":\n" + body;
  }
  return text;
}

}  // namespace sluice::migrate
