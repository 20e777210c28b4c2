#include "configs/migrate/migration.hpp"

#include <gtest/gtest.h>

#include "configs/migrate/report.hpp"
#include "configs/migrate/write_yaml.hpp"
#include "configs/reader.hpp"

namespace sluice::migrate {
namespace {

MigratedKey key(std::string path, std::string value, KeyClass kind, std::string note = "") {
  return {.path = std::move(path),
          .place = {3, 5},
          .value = std::move(value),
          .kind = kind,
          .note = std::move(note)};
}

class MigrationTest : public ::testing::Test {
 protected:
  Migration result{.file = "ds.json", .source = "DeepSpeed 0.19.8"};
  MigrationDraft draft{result};

  std::vector<std::string> errors() const {
    std::vector<std::string> lines;
    for (const MigrationError& error : result.errors) lines.push_back(error.text);
    return lines;
  }
};

using Lines = std::vector<std::string>;

TEST_F(MigrationTest, AKeyShowsTheValueOfASetting) {
  draft.add(key("zero_optimization.stage", "3", KeyClass::kMapped));
  draft.set("zero_optimization.stage", "zero.stage", "3", "zero_optimization.stage 3");
  apply_settings(result, {"zero.stage=2"});
  ASSERT_EQ(result.keys.front().to.size(), 1U);
  EXPECT_EQ(result.keys.front().to.front().value, "2");
  EXPECT_EQ(*draft.value("zero.stage"), "2");
}

TEST_F(MigrationTest, AStopHasTheRemedyOfItsKey) {
  MigratedKey type = key("optimizer.type", "\"Lamb\"", KeyClass::kRefused, "Sluice has no Lamb");
  type.stops = true;
  type.remedy = "choose AdamW";
  draft.add(type);
  settle_allowed(result, {});
  EXPECT_EQ(errors(), Lines{"ds.json:3:5: optimizer.type: \"Lamb\" stops the migration: Sluice has "
                            "no Lamb; choose AdamW, or go on without its effect: --allow "
                            "optimizer.type"});
}

TEST_F(MigrationTest, AYamlHasSectionsInOrderOriginsAndNoDefaults) {
  draft.add(key("zero_optimization.stage", "3", KeyClass::kMapped));
  draft.add(key("zero_optimization.reduce_bucket_size", "5e8", KeyClass::kChanged));
  draft.add(key("optimizer.params.eps", "1e-8", KeyClass::kMapped));
  draft.set("zero_optimization.reduce_bucket_size", "zero.bucket_bytes", "2000000000",
            "zero_optimization.reduce_bucket_size 5e8 elements");
  draft.set("zero_optimization.stage", "zero.stage", "3", "zero_optimization.stage 3");
  draft.set("optimizer.params.eps", "optimizer.eps", "1e-8", "optimizer.params.eps 1e-8");
  draft.set("", "model.from", yaml_text("hf/a \"b\""), "--model");
  draft.set("", "data.train", "[tokens]", "");
  EXPECT_EQ(write_yaml(result),
            "# Carried over from ds.json (DeepSpeed 0.19.8) by `sluice migrate`.\n"
            "\nmodel:\n"
            "  from: \"hf/a \\\"b\\\"\"                # --model\n"
            "\ndata:\n"
            "  train: [tokens]\n"
            "\nzero:\n"
            "  stage: 3                          # zero_optimization.stage 3\n"
            "  bucket_bytes: 2000000000          # zero_optimization.reduce_bucket_size 5e8 "
            "elements\n");
}

TEST_F(MigrationTest, BlanksAreMarkedAndLoad) {
  draft.set("", "train.micro_batch", "4", "");
  const std::string yaml = write_yaml(result);
  EXPECT_NE(yaml.find("\nmodel:\n  # FILL IN the model"), std::string::npos);
  EXPECT_NE(yaml.find("\ndata:\n  # FILL IN the data"), std::string::npos);
  const RunConfig run = load_config_text("out.yaml", yaml, {}).run;
  EXPECT_EQ(run.model.vocab, 50257);
  EXPECT_EQ(run.train.micro_batch, 4);
}

TEST_F(MigrationTest, TheLastSettingOfAKeyCounts) {
  draft.add(key("a", "1", KeyClass::kMapped));
  draft.set("a", "zero.stage", "2", "a 1");
  draft.set("a", "zero.stage", "3", "a 1, again");
  apply_settings(result, {"train.steps=20"});
  ASSERT_EQ(result.lines.size(), 2U);
  EXPECT_EQ(result.lines[0].setting.value, "3");
  EXPECT_EQ(result.lines[1].origin, "--set");
  ASSERT_EQ(result.keys[0].to.size(), 1U);
  EXPECT_EQ(result.keys[0].to[0].value, "3");
  EXPECT_EQ(errors(), Lines());
}

TEST_F(MigrationTest, AValueOutsideTheSchemaIsAnErrorAtItsKey) {
  draft.add(key("aio.queue_depth", "9999", KeyClass::kMapped));
  draft.set("aio.queue_depth", "offload.queue_depth", "9999", "");
  EXPECT_EQ(errors(), Lines{"ds.json:3:5: aio.queue_depth: Sluice has no such value: "
                            "offload.queue_depth: '9999' is out of range, expected a whole number "
                            "from 1 to 4096"});
  EXPECT_TRUE(result.lines.empty());
}

TEST_F(MigrationTest, WrongSettings) {
  apply_settings(
      result, {"zero.stage=7", "zero.stgae=1", "train.steps", "zero={stage: 2}", "zreo.stage=2"});
  EXPECT_EQ(errors(),
            (Lines{std::string("--set zero.stage=7: zero.stage: '7' is out of range, expected a ") +
                       "whole number from 0 to 3",
                   "--set zero.stgae=1: zero.stgae: unknown key; did you mean 'stage'?",
                   "--set train.steps: expected section.key=value",
                   "--set zero={stage: 2}: expected section.key=value",
                   "--set zreo.stage=2: zreo: unknown section; did you mean 'zero'?"}));
}

TEST_F(MigrationTest, AKeyThatStopsIsAnErrorUnlessAllowed) {
  MigratedKey lamb = key("optimizer.type", "\"Lamb\"", KeyClass::kRefused, "Sluice has no LAMB");
  lamb.stops = true;
  draft.add(lamb);
  Migration allowed = result;
  settle_allowed(result, {});
  EXPECT_EQ(errors(), Lines{"ds.json:3:5: optimizer.type: \"Lamb\" stops the migration: Sluice has "
                            "no LAMB; leave the key out, or go on without its effect: --allow "
                            "optimizer.type"});
  settle_allowed(allowed, {"optimizer.type"});
  EXPECT_TRUE(allowed.errors.empty());
  EXPECT_NE(write_yaml(allowed).find("# Allowed, and without effect here: optimizer.type \"Lamb\""),
            std::string::npos);
}

TEST_F(MigrationTest, AnAllowedKeyMustStop) {
  settle_allowed(result, {"zero_optimization.stage"});
  EXPECT_EQ(errors(), Lines{"--allow zero_optimization.stage: no such key stops this migration; "
                            "leave the flag out"});
}

TEST_F(MigrationTest, RulesBetweenKeysAreErrorsAtTheSource) {
  draft.add(key("zero_optimization.offload_param.device", "\"cpu\"", KeyClass::kMapped));
  draft.set("zero_optimization.offload_param.device", "offload.parameters", "host", "");
  draft.set("", "zero.stage", "3", "");
  check_result(result);
  ASSERT_EQ(result.errors.size(), 1U);
  EXPECT_EQ(result.errors[0].path, "zero_optimization.offload_param.device");
  EXPECT_NE(result.errors[0].text.find("ds.json:3:5: zero_optimization.offload_param.device: the "
                                       "result would break a rule of Sluice: offload.parameters: "),
            std::string::npos)
      << result.errors[0].text;
}

TEST_F(MigrationTest, MissingValuesAreAskedForAllAtOnce) {
  draft.missing("optimizer.params.lr", "--set optimizer.lr=LR, or learning_rate with --trainer");
  draft.missing("train_batch_size", "--world N");
  EXPECT_EQ(error_text(result),
            "ds.json leaves open what a run needs; give:\n"
            "  optimizer.params.lr: --set optimizer.lr=LR, or learning_rate with --trainer\n"
            "  train_batch_size: --world N\n");
  EXPECT_TRUE(result.is_stopped());
}

TEST_F(MigrationTest, TheReportHasEveryKeyByClass) {
  draft.add(key("zero_optimization.stage", "3", KeyClass::kMapped, "zero.stage"));
  draft.set("zero_optimization.stage", "zero.stage", "3", "");
  draft.add(key("zero_optimization.overlap_comm", "true", KeyClass::kNotNeeded, "always"));
  draft.add(key("fp16.x", "0", KeyClass::kRefused, "no x"));
  MigratedKey lamb = key("optimizer.type", "\"Lamb\"", KeyClass::kRefused, "no LAMB");
  lamb.stops = true;
  draft.add(lamb);
  MigratedKey clip = key("gradient_clipping", "1.0", KeyClass::kMapped, "1.0 since 0.19.3");
  clip.is_written = false;
  draft.add(clip);
  draft.set("gradient_clipping", "train.clip", "1", "");
  apply_settings(result, {"train.steps=5"});
  EXPECT_EQ(report_text(result, false),
            "ds.json: DeepSpeed 0.19.8, 4 keys\n"
            "\nmapped (1)\n"
            "  zero_optimization.stage         3  ->  zero.stage: 3\n"
            "\nnot needed here (1)\n"
            "  zero_optimization.overlap_comm  true\n"
            "      always\n"
            "\nnot supported, at their defaults: nothing is lost (1)\n"
            "  fp16.x                          0\n"
            "      no x\n"
            "\nnot supported (1)\n"
            "  optimizer.type                  \"Lamb\"\n"
            "      no LAMB\n"
            "\ndefaults that matter (1)\n"
            "  gradient_clipping               1.0  ->  train.clip: 1\n"
            "      1.0 since 0.19.3\n"
            "\nset by --set\n"
            "  train.steps: 5\n");
  EXPECT_NE(report_text(result, true).find("\x1b[1;32mmapped (1)\x1b[0m"), std::string::npos);
}

TEST_F(MigrationTest, TheJsonHasTheContractsNames) {
  draft.add(key("zero_optimization.stage", "3", KeyClass::kMapped, "zero.stage"));
  draft.set("zero_optimization.stage", "zero.stage", "3", "");
  result.effective["zero_optimization.stage"] = "3";
  const std::string json = report_json(result);
  for (const char* part :
       {"\"path\": \"zero_optimization.stage\"", "\"value\": 3", "\"class\": \"mapped\"",
        "\"zero.stage\": \"3\"", "\"line\": 3", "\"errors\": []", "\"config\": \"# Carried over"}) {
    EXPECT_NE(json.find(part), std::string::npos) << part << "\n" << json;
  }
}

TEST_F(MigrationTest, AStoppedMigrationHasNoConfiguration) {
  draft.error("", "the cause; the remedy");
  EXPECT_NE(report_json(result).find("\"config\": null"), std::string::npos);
}

TEST(YamlText, ReadsBackToTheSameText) {
  for (const std::string text : {"a b", "x: #y", "${HOME}/x", "\"quoted\\", "1e5"}) {
    const RunConfig run =
        load_config_text("", "offload:\n", {"offload.nvme_path=" + yaml_text(text)}).run;
    EXPECT_EQ(run.offload.nvme_path, std::vector<std::string>{text});
  }
}

}  // namespace
}  // namespace sluice::migrate
