// Configurations of public repositories: every key has exactly one class, and the reports are those
// of reports/. README.md says where the files are and how the reports are written again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "configs/migrate/deepspeed/deepspeed_migration.hpp"
#include "configs/migrate/launcher/training_arguments.hpp"
#include "configs/migrate/write_yaml.hpp"
#include "tests/configs/migrate/real/key_report.hpp"
#include "tests/configs/migrate/real/source_list.hpp"

namespace sluice::testing {
namespace {

using migrate::HjsonDocument;
using migrate::HjsonNode;
using migrate::Migration;

const std::filesystem::path kFolder = SLUICE_SOURCE_DIR "/tests/configs/migrate/real";

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<RealConfig> sources() { return read_sources(text_of(kFolder / "README.md")); }

int written_count(const HjsonNode& root, std::string_view key, int otherwise) {
  const HjsonNode* node = root.find(key);
  return node != nullptr && node->integer ? static_cast<int>(*node->integer) : otherwise;
}

bool has_auto(const HjsonNode& node) {
  return node.text == "auto" ||
         std::any_of(node.entries.begin(), node.entries.end(),
                     [](const migrate::HjsonEntry& entry) { return has_auto(entry.value); });
}

// Training arguments of one Hugging Face run, with the batch sizes that the file has.
migrate::TrainerValues training_arguments(const HjsonNode& root) {
  const HjsonNode* fp16 = root.find("fp16");
  const HjsonNode* enabled = fp16 != nullptr ? fp16->find("enabled") : nullptr;
  const bool is_fp16 = enabled != nullptr && enabled->boolean;
  const std::string text =
      "{per_device_train_batch_size: " +
      std::to_string(written_count(root, "train_micro_batch_size_per_gpu", 2)) +
      ", gradient_accumulation_steps: " +
      std::to_string(written_count(root, "gradient_accumulation_steps", 4)) +
      ", learning_rate: 2e-5, weight_decay: 0.01, adam_beta2: 0.999, max_grad_norm: 1.0, "
      "max_steps: 1000, warmup_steps: 100, " +
      (is_fp16 ? "fp16" : "bf16") + ": true}";
  return migrate::read_training_arguments(text, "training_args.json");
}

Migration migrated(const RealConfig& source, const HjsonDocument& document,
                   const migrate::DeepSpeedVersion& version) {
  if (!document.problems.empty()) return {.file = source.name, .source = ""};
  const HjsonNode& root = document.root;
  migrate::DeepSpeedOptions options{.file = source.name,
                                    .parse = {.version = version, .world = source.world},
                                    .hidden = 4096,
                                    .layers = 32};
  if (!has_auto(root)) return migrate_deepspeed(root, options);
  const migrate::TrainerValues values = training_arguments(root);
  EXPECT_TRUE(values.errors.empty()) << source.name << ": " << values.errors.front().text;
  migrate::TrainerContext context = migrate::trainer_context(root);
  context.world = source.world;
  context.hidden = options.hidden;
  options.parse.autos = migrate::trainer_autos(values, context);
  Migration migration = migrate_deepspeed(root, options);
  migrate::MigrationDraft draft(migration);
  migrate::map_trainer(values, context, draft);
  return migration;
}

// Paths of all keys that hold no further keys.
void collect_leaves(const HjsonNode& node, const std::string& section,
                    std::vector<std::string>& leaves) {
  for (const migrate::HjsonEntry& entry : node.entries) {
    const std::string path = section.empty() ? entry.key : section + "." + entry.key;
    if (entry.value.entries.empty()) {
      leaves.push_back(path);
    } else {
      collect_leaves(entry.value, path, leaves);
    }
  }
}

bool covers(const migrate::MigratedKey& key, const std::string& leaf) {
  return key.is_written && (key.path == leaf || leaf.starts_with(key.path + "."));
}

void expect_each_key_once(const HjsonNode& root, const Migration& migration) {
  std::vector<std::string> leaves;
  collect_leaves(root, "", leaves);
  std::set<const migrate::MigratedKey*> used;
  for (const std::string& leaf : leaves) {
    int count = 0;
    for (const migrate::MigratedKey& key : migration.keys) {
      if (covers(key, leaf)) ++count, used.insert(&key);
    }
    EXPECT_EQ(count, 1) << migration.file << ": " << leaf;
  }
  for (const migrate::MigratedKey& key : migration.keys) {
    if (key.path.starts_with("trainer.")) continue;
    EXPECT_TRUE(!key.is_written || used.contains(&key))
        << migration.file << ": " << key.path << " is no key of the file";
  }
}

// The YAML is a configuration of Sluice once every key that stops is allowed.
void expect_a_configuration(Migration migration) {
  if (migration.is_stopped()) return;
  std::vector<std::string> allowed;
  for (const migrate::MigratedKey& key : migration.keys) {
    if (key.stops) allowed.push_back(key.path);
  }
  settle_allowed(migration, allowed);
  check_result(migration);
  for (const migrate::MigrationError& error : migration.errors) ADD_FAILURE() << error.text;
}

// The files themselves, or "" where SLUICE_REAL_CONFIGS names no folder.
std::filesystem::path originals() {
  const char* folder = std::getenv("SLUICE_REAL_CONFIGS");
  return folder != nullptr ? folder : "";
}

std::map<std::string, std::string> golden() {
  std::map<std::string, std::string> reports;
  for (const auto& file : std::filesystem::directory_iterator(kFolder / "reports")) {
    reports.merge(split_reports(text_of(file.path())));
  }
  return reports;
}

HjsonDocument document_of(const RealConfig& source,
                          const std::map<std::string, std::string>& reports) {
  if (!originals().empty()) {
    const std::string text = text_of(originals() / source.name);
    EXPECT_FALSE(text.empty()) << "cannot read " << originals() / source.name;
    return migrate::read_hjson(text);
  }
  const auto report =
      reports.find(report_title(source.name, source.world, source.versions.front()));
  EXPECT_TRUE(report != reports.end()) << source.name << " has no report";
  return migrate::read_hjson(report != reports.end() ? config_of(report->second) : "{}");
}

void write_reports(const std::map<std::string, std::string>& files) {
  for (const auto& [name, text] : files) {
    std::ofstream(kFolder / "reports" / name, std::ios::binary) << text;
  }
}

TEST(RealConfigs, AreManyAndEachHasALicence) {
  std::set<std::string> repositories;
  std::set<std::string> names;
  for (const RealConfig& source : sources()) {
    repositories.insert(source.repository);
    EXPECT_TRUE(names.insert(source.name).second) << source.name << " stands twice";
    EXPECT_TRUE(source.licence == "Apache-2.0" || source.licence == "MIT" ||
                source.licence == "BSD-3-Clause")
        << source.name;
    EXPECT_EQ(source.commit.size(), 40U) << source.name;
    EXPECT_EQ(source.blob.size(), 40U) << source.name;
  }
  EXPECT_GE(names.size(), 40U);
  EXPECT_GE(repositories.size(), 12U);
}

TEST(RealConfigs, EveryKeyHasOneClassAndTheReportIsTheGoldenOne) {
  const auto reports = golden();
  const bool writes = std::getenv("SLUICE_WRITE_REPORTS") != nullptr;
  std::map<std::string, std::string> files;
  std::size_t count = 0;
  for (const RealConfig& source : sources()) {
    const HjsonDocument document = document_of(source, reports);
    for (const migrate::DeepSpeedVersion& version : source.versions) {
      const Migration migration = migrated(source, document, version);
      if (document.problems.empty()) expect_each_key_once(document.root, migration);
      expect_a_configuration(migration);
      const std::string title = report_title(source.name, source.world, version);
      const std::string report = key_report(document.problems, migration);
      std::string& file = files[source.report_file()];
      file += (file.empty() ? "" : "\n") + title + "\n" + report;
      ++count;
      const auto old = reports.find(title);
      if (writes) continue;
      EXPECT_EQ(report, old != reports.end() ? old->second : "") << title;
    }
  }
  if (writes) return write_reports(files);
  EXPECT_EQ(count, reports.size()) << "reports/ has a report of no source";
}

TEST(RealConfigs, AReportTellsTheConfiguration) {
  const std::string report =
      "  a = 1\n      mapped, train.steps: 1\n  s.b = {\"x\": 2}\n      not_needed; why = not\n"
      "  (default) c = 3\n      mapped\n  s.d = \"auto\"\n      changed\n  error: a: x = y\n";
  const HjsonDocument document = migrate::read_hjson(config_of(report));
  ASSERT_TRUE(document.problems.empty());
  EXPECT_EQ(migrate::to_json(document.root), R"({"a": 1, "s": {"b": {"x": 2}, "d": "auto"}})");
}

}  // namespace
}  // namespace sluice::testing
