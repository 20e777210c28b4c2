// Precedence, inheritance, variables, sizes, origins, and the resolved text.
#include "configs/reader.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.hpp"
#include "configs/schema.hpp"
#include "configs/suggest.hpp"
#include "configs/value.hpp"
#include "tests/configs/scratch.hpp"

namespace sluice::testing {
namespace {

using ::testing::Test;

// Every key equal, by the schema.
void expect_same(const RunConfig& a, const RunConfig& b) {
  for (const Section& section : schema()) {
    for (const Key& key : section.keys) EXPECT_EQ(key.get(a), key.get(b)) << key.path();
  }
}

class Reader : public Test {
 protected:
  Scratch scratch_;
};

TEST_F(Reader, EverySectionMayBeEmpty) {
  scratch_.write("c.yaml", "zero:\ntrain: {}\n");
  RunConfig defaults;
  defaults.output.dir = "runs/c";
  defaults.data.cache_dir = ".cache/tokens";
  expect_same(load_config("c.yaml", {}).run, defaults);
}

TEST_F(Reader, DefaultsThenBasesThenFileThenOverrides) {
  scratch_.write("far.yaml", "train: {steps: 1, micro_batch: 1, seed: 1, log_every: 1}\n");
  scratch_.write("shared/near.yaml",
                 "base: ../far.yaml\ntrain:\n  micro_batch: 2\n  seed: 2\n  log_every: 2\n");
  scratch_.write("c.yaml", "base: shared/near.yaml\ntrain: {seed: 3, log_every: 3}\n");
  const LoadedConfig loaded = load_config("c.yaml", {"train.log_every=4", "train.log_every=5"});
  EXPECT_EQ(loaded.run.train.clip, TrainOptions{}.clip);
  EXPECT_EQ(loaded.run.train.steps, 1);
  EXPECT_EQ(loaded.run.train.micro_batch, 2);
  EXPECT_EQ(loaded.run.train.seed, 3U);
  EXPECT_EQ(loaded.run.train.log_every, 5);
  EXPECT_EQ(loaded.place("train.clip"), "c.yaml (default)");
  EXPECT_EQ(loaded.place("train.steps"), "far.yaml:1:16");
  EXPECT_EQ(loaded.place("train.micro_batch"), "shared/near.yaml:3:16");
  EXPECT_EQ(loaded.place("train.seed"), "c.yaml:2:15");
  EXPECT_EQ(loaded.place("train.log_every"), "--set train.log_every=5");
  EXPECT_FALSE(loaded.given("train.clip"));
  EXPECT_TRUE(loaded.given("train.seed"));
}

TEST_F(Reader, ALinkedFileFindsItsBaseBesideTheLinkAndBesideItself) {
  scratch_.write("shared/base.yaml", "train: {steps: 1}\n");
  scratch_.write("shared/c.yaml", "base: base.yaml\n");
  std::filesystem::create_symlink("shared/c.yaml", "link.yaml");
  EXPECT_EQ(load_config("link.yaml", {}).run.train.steps, 1);
  std::filesystem::create_directories("mine");
  std::filesystem::create_directory_symlink("../shared", "mine/shared");
  scratch_.write("shared/up.yaml", "base: ../far.yaml\n");
  scratch_.write("far.yaml", "train: {steps: 2}\n");
  EXPECT_EQ(load_config("mine/shared/up.yaml", {}).run.train.steps, 2);
  scratch_.write("base.yaml", "train: {steps: 3}\n");
  EXPECT_EQ(load_config("link.yaml", {}).run.train.steps, 3);
}

// An installed package brings configurations: its launcher names their folder.
TEST_F(Reader, AConfigurationThatThePackageBringsIsFoundByItsName) {
  scratch_.write("package/configs/start.yaml", "train: {steps: 11}\n");
  scratch_.write("package/configs/secret.txt", "train: {steps: 12}\n");
  EXPECT_THROW((void)load_config("start.yaml", {}), ConfigError);
  setenv("SLUICE_SHIPPED", "package", 1);
  for (const char* path : {"start.yaml", "configs/start.yaml"}) {
    const LoadedConfig loaded = load_config(path, {});
    EXPECT_EQ(loaded.run.train.steps, 11) << path;
    EXPECT_EQ(loaded.place("train.steps"), "package/configs/start.yaml:1:16") << path;
    EXPECT_EQ(loaded.run.output.dir, "runs/start") << path;
    EXPECT_FALSE(loaded.run.data.cache_dir.starts_with("package")) << loaded.run.data.cache_dir;
  }
  EXPECT_THROW((void)load_config("secret.txt", {}), ConfigError);
  EXPECT_THROW((void)load_config("", {}), ConfigError);
  scratch_.write("start.yaml", "train: {steps: 13}\n");  // the user's own comes first
  EXPECT_EQ(load_config("start.yaml", {}).run.train.steps, 13);
  unsetenv("SLUICE_SHIPPED");
}

TEST_F(Reader, ListsAreReplacedAsAWhole) {
  scratch_.write("b.yaml", "data: {text: [a, b, c], split: [80, 20]}\n");
  scratch_.write("c.yaml", "base: b.yaml\ndata: {text: [d]}\n");
  EXPECT_EQ(load_config("c.yaml", {}).run.data.text, std::vector<std::string>{"d"});
  EXPECT_EQ(load_config("c.yaml", {"data.text=[e, f]", "data.split=[1, 2]"}).run.data.text,
            (std::vector<std::string>{"e", "f"}));
}

TEST_F(Reader, OverridesAreYaml) {
  scratch_.write("c.yaml", "zero: {stage: 1}\n");
  const LoadedConfig loaded =
      load_config("c.yaml", {"data.text=\"**/*.py\"", "zero={stage: 3, prefetch_units: 4}",
                             "optimizer.betas=[0.5, 0.75]", "output.dir=a=b", "model.from=''"});
  EXPECT_EQ(loaded.run.data.text, std::vector<std::string>{"**/*.py"});
  EXPECT_EQ(loaded.run.zero.stage, 3);
  EXPECT_EQ(loaded.run.zero.prefetch_units, 4);
  EXPECT_EQ(loaded.run.optimizer.betas, (std::array<double, 2>{0.5, 0.75}));
  EXPECT_EQ(loaded.run.output.dir, "a=b");
  EXPECT_EQ(loaded.run.model.from, "");
}

TEST_F(Reader, Variables) {
  setenv("SLUICE_TEST_STEPS", "12k", 1);
  setenv("SLUICE_TEST_EMPTY", "", 1);
  unsetenv("SLUICE_TEST_UNSET");
  scratch_.write("c.yaml",
                 "train: {steps: \"${SLUICE_TEST_STEPS}\"}\n"
                 "output:\n"
                 "  dir: ${SLUICE_TEST_UNSET:-runs}/${SLUICE_TEST_EMPTY:-x}${SLUICE_TEST_EMPTY}\n"
                 "data: {text: [\"$${HOME}\", $5, \"{a}\"]}\n");
  const LoadedConfig loaded = load_config("c.yaml", {});
  EXPECT_EQ(loaded.run.train.steps, 12'000);
  EXPECT_EQ(loaded.run.output.dir, "runs/x");
  EXPECT_EQ(loaded.run.data.text, (std::vector<std::string>{"${HOME}", "$5", "{a}"}));
  const std::string resolved = loaded.resolved_yaml();
  EXPECT_NE(resolved.find("# c.yaml:1:16 $SLUICE_TEST_STEPS\n"), std::string::npos) << resolved;
}

TEST_F(Reader, BaseFromAVariable) {
  setenv("SLUICE_TEST_BASE", "b", 1);
  scratch_.write("b.yaml", "zero: {stage: 2}\n");
  scratch_.write("c.yaml", "base: ${SLUICE_TEST_BASE}.yaml\n");
  EXPECT_EQ(load_config("c.yaml", {}).run.zero.stage, 2);
}

TEST_F(Reader, CountsSizesAndTimes) {
  scratch_.write(
      "c.yaml",
      "train: {steps: 1e9, eval_every: 50k, log_every: 1_000, seed: 9223372036854775807}\n"
      "memory: {device: 24GiB, host: 1.5 GB, nvme: none}\n"
      "zero: {bucket_bytes: 4096, persist_below: 1.5M}\n"
      "launch: {timeout: 1.5m, nproc: auto}\n"
      "parallel: {data: auto}\n"
      "optimizer: {lr: 3e-4, weight_decay: +1E-1, eps: .5}\n");
  const RunConfig run = load_config("c.yaml", {}).run;
  EXPECT_EQ(run.train.steps, 1'000'000'000);
  EXPECT_EQ(run.train.eval_every, 50'000);
  EXPECT_EQ(run.train.log_every, 1'000);
  EXPECT_EQ(run.train.seed, 9223372036854775807U);
  EXPECT_EQ(run.memory.device, std::int64_t{24} << 30);
  EXPECT_EQ(run.memory.host, 1'500'000'000);
  EXPECT_EQ(run.memory.nvme, 0);
  EXPECT_EQ(run.zero.bucket_bytes, 4096);
  EXPECT_EQ(run.zero.persist_below, 1'500'000);
  EXPECT_EQ(run.launch.timeout_seconds, 90);
  EXPECT_EQ(run.launch.nproc, 0);
  EXPECT_EQ(run.parallel.data, 0);
  EXPECT_EQ(run.optimizer.lr, 3e-4);
  EXPECT_EQ(run.optimizer.weight_decay, 0.1);
  EXPECT_EQ(run.optimizer.eps, 0.5);
}

TEST_F(Reader, TimesInEveryUnit) {
  scratch_.write("c.yaml", "zero: {stage: 1}\n");
  const auto seconds = [](const std::string& text) {
    return load_config("c.yaml", {"launch.timeout=" + text}).run.launch.timeout_seconds;
  };
  EXPECT_EQ(seconds("600"), 600);
  EXPECT_EQ(seconds("30s"), 30);
  EXPECT_EQ(seconds("5m"), 300);
  EXPECT_EQ(seconds("2h"), 7200);
  EXPECT_EQ(seconds("0.25"), 0.25);
}

TEST_F(Reader, AnchorsWork) {
  scratch_.write("c.yaml", "data: {text: &files [a, b], valid: *files}\n");
  const LoadedConfig loaded = load_config("c.yaml", {});
  EXPECT_EQ(loaded.run.data.valid, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(loaded.place("data.valid"), "c.yaml:1:36");
}

TEST_F(Reader, DerivedPathsFollowTheFile) {
  scratch_.write("some/where/tiny.yaml", "\xef\xbb\xbfzero: {stage: 1}\r\n");
  const LoadedConfig loaded = load_config("some/where/tiny.yaml", {});
  EXPECT_EQ(loaded.run.output.dir, "runs/tiny");
  EXPECT_EQ(loaded.run.data.cache_dir, "some/where/.cache/tokens");
}

TEST_F(Reader, ResolvedTextNamesEveryOrigin) {
  scratch_.write("b.yaml", "zero: {stage: 2}\n");
  scratch_.write("c.yaml", "base: b.yaml\nzero:\n  bucket_bytes: 1MiB\n");
  const std::string resolved = load_config("c.yaml", {"zero.prefetch_units=3"}).resolved_yaml();
  EXPECT_NE(resolved.find("zero:\n"
                          "  stage: 2                      # b.yaml:1:15\n"
                          "  bucket_bytes: 1048576         # c.yaml:3:17\n"
                          "  prefetch_units: 3             # --set zero.prefetch_units=3\n"
                          "  persist_below: 0              # default\n"
                          "  reduce_every: micro_batch     # default\n"
                          "  reduce_dtype: fp32            # default\n"
                          "offload:\n"),
            std::string::npos)
      << resolved;
}

// A value other than the default for every key.
Value another(const Rules& rules, const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return !*flag;
  if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    if (rules.type != KeyType::kEnum) return *whole + (*whole == 0 ? 3 : 1);
    return std::int64_t{rules.choices.size() > 1 && *whole == 0 ? 1 : 0};
  }
  if (const auto* number = std::get_if<double>(&value)) return *number / 3 + 1.0 / 7;
  if (rules.type == KeyType::kSteps) return std::string("6.25%");
  if (rules.type == KeyType::kRate) return std::string("0.01%");
  if (std::holds_alternative<std::string>(value)) {
    return std::string("a \"b\" \\ # ${X} $${Y} 'c': \xc3\xa9, * [d]");
  }
  if (std::holds_alternative<std::vector<double>>(value))
    return std::vector<double>{1.0 / 3, 1e-300};
  if (std::holds_alternative<std::vector<std::int64_t>>(value)) {
    return std::vector<std::int64_t>{1, 2147483647};
  }
  if (std::holds_alternative<std::vector<Record>>(value)) {
    Record record;
    for (const RecordField& field : *rules.fields) {
      record.values.push_back(another(field.rules, field.fallback));
    }
    return std::vector<Record>{record, record};
  }
  return std::vector<std::string>{"**/*.py", "- a", "null", "~", "1e3"};
}

TEST_F(Reader, ResolvedTextLoadsAgain) {
  scratch_.write("c.yaml", "zero: {stage: 1}\n");
  LoadedConfig loaded = load_config("c.yaml", {});
  scratch_.write("again/resolved.yaml", loaded.resolved_yaml());
  expect_same(load_config("again/resolved.yaml", {}).run, loaded.run);

  for (const Section& section : schema()) {
    for (const Key& key : section.keys)
      key.set(loaded.run, another(key.rules, key.get(RunConfig{})));
  }
  // So that no key is idle (idle_keys.hpp). No optimizer reads the keys of all, and a static loss
  // scale none of a dynamic one.
  loaded.run.offload.optimizer = Tier::kNvme;
  const LossScaleOptions constant{.fixed = loaded.run.loss_scale.fixed};
  loaded.run.loss_scale.fixed = 0;
  const OptimizerOptions all = loaded.run.optimizer;
  OptimizerOptions adamw = all;
  adamw.type = OptimizerType::kAdamW;
  adamw.momentum = OptimizerOptions{}.momentum;
  const OptimizerOptions sgd{.type = OptimizerType::kSgd,
                             .lr = all.lr,
                             .momentum = all.momentum,
                             .weight_decay = all.weight_decay,
                             .decay = all.decay};
  for (const OptimizerOptions& optimizer : {adamw, sgd}) {
    loaded.run.optimizer = optimizer;
    scratch_.write("again/resolved.yaml", loaded.resolved_yaml());
    const LoadedConfig again = load_config("again/resolved.yaml", {});
    expect_same(again.run, loaded.run);
    scratch_.write("again/resolved.yaml", again.resolved_yaml());
    expect_same(load_config("again/resolved.yaml", {}).run, loaded.run);
    EXPECT_TRUE(is_resolved_yaml(loaded.resolved_yaml()));
    EXPECT_TRUE(is_resolved_yaml(again.resolved_yaml()));
    loaded.run.loss_scale = constant;
  }
  for (const char* line : {"zero: {stage: 1}\n", "zero:\n  stage: 1\n", "# mine\n", "\n",
                           "                                # mine\n"}) {
    EXPECT_FALSE(is_resolved_yaml(loaded.resolved_yaml() + line)) << line;
  }
}

TEST_F(Reader, TextThatIsNoFileIsReadLikeOne) {
  const LoadedConfig loaded =
      load_config_text("step-7/manifest.json", "train:\n  steps: 9\n", {"train.seed=3"});
  EXPECT_EQ(loaded.run.train.steps, 9);
  EXPECT_EQ(loaded.run.train.seed, 3U);
  EXPECT_EQ(loaded.place("train.steps"), "step-7/manifest.json:2:10");
  EXPECT_EQ(loaded.place("train.clip"), "step-7/manifest.json (default)");
  EXPECT_THROW((void)load_config_text("m.json", "train: {stps: 1}", {}), ConfigError);
}

TEST(Value, DoublesSurviveTheirText) {
  const Rules rules{.type = KeyType::kFloat};
  for (const double value : {0.1, 1.0 / 3, 3e-4, 1e22, 123456789.125, 5e-324,
                             1.7976931348623157e308, -2.5, 65536.0, 1e15, 9007199254740993.0}) {
    const auto read = read_scalar(rules, format_number(value));
    ASSERT_TRUE(std::holds_alternative<Value>(read)) << format_number(value);
    EXPECT_EQ(std::get<double>(std::get<Value>(read)), value);
  }
}

TEST(Suggest, EditDistance) {
  EXPECT_EQ(edit_distance("stage", "stage"), 0U);
  EXPECT_EQ(edit_distance("stgae", "stage"), 1U);
  EXPECT_EQ(edit_distance("", "lr"), 2U);
  EXPECT_EQ(edit_distance("Micro_Batch", "micro_batch"), 0U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

TEST(Suggest, NearestOnlyIfNear) {
  EXPECT_EQ(nearest("bta", {"lr", "betas", "eps"}), "betas");
  EXPECT_EQ(nearest("momentum", {"lr", "betas", "eps"}), std::nullopt);
  EXPECT_EQ(nearest("", {"lr"}), std::nullopt);
  EXPECT_EQ(nearest(std::string(10'000, 'l'), {"lr"}), std::nullopt);
}

}  // namespace
}  // namespace sluice::testing
