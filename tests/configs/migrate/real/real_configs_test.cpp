// Configurations of public repositories: every key has exactly one class, and the reports are those
// of reports/. README.md says where the files are and how the reports are written again.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "configs/migrate/deepspeed/deepspeed_migration.hpp"
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

// Values of "auto" as a Hugging Face run of a model of width 4096 fills them.
const std::map<std::string, std::string, std::less<>>& trainer_values() {
  static const std::map<std::string, std::string, std::less<>> values{
      {"gradient_clipping", "1.0"},
      {"optimizer.params.lr", "2e-5"},
      {"optimizer.params.betas", "[0.9, 0.999]"},
      {"optimizer.params.eps", "1e-8"},
      {"optimizer.params.weight_decay", "0.01"},
      {"scheduler.params.warmup_min_lr", "0"},
      {"scheduler.params.warmup_max_lr", "2e-5"},
      {"scheduler.params.warmup_num_steps", "100"},
      {"scheduler.params.total_num_steps", "1000"},
      {"fp16.enabled", "false"},
      {"bf16.enabled", "true"},
      {"zero_optimization.reduce_bucket_size", "16777216"},
      {"zero_optimization.prefetch_bucket_size", "15099494"},
      {"zero_optimization.param_persistence_threshold", "40960"},
  };
  return values;
}

int written_count(const HjsonNode& root, std::string_view key, int otherwise) {
  const HjsonNode* node = root.find(key);
  return node != nullptr && node->integer ? static_cast<int>(*node->integer) : otherwise;
}

migrate::DeepSpeedOptions options_of(const RealConfig& source, const HjsonNode& root,
                                     const migrate::DeepSpeedVersion& version) {
  const int micro = written_count(root, "train_micro_batch_size_per_gpu", 2);
  const int accumulation = written_count(root, "gradient_accumulation_steps", 4);
  migrate::DeepSpeedOptions options{
      .file = source.name,
      .parse = {.version = version, .world = source.world, .autos = trainer_values()},
      .hidden = 4096,
      .layers = 32};
  auto& autos = options.parse.autos;
  autos["train_micro_batch_size_per_gpu"] = std::to_string(micro);
  autos["gradient_accumulation_steps"] = std::to_string(accumulation);
  autos["train_batch_size"] = std::to_string(micro * accumulation * source.world);
  return options;
}

Migration migrated(const RealConfig& source, const HjsonDocument& document,
                   const migrate::DeepSpeedVersion& version) {
  if (!document.problems.empty()) return {.file = source.name, .source = ""};
  return migrate_deepspeed(document.root, options_of(source, document.root, version));
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
    EXPECT_TRUE(!key.is_written || used.contains(&key))
        << migration.file << ": " << key.path << " is no key of the file";
  }
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
