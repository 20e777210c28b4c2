// Every kind of mistake in a file, its base, the environment or --set, with its exact message.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.hpp"
#include "configs/reader.hpp"
#include "configs/validate.hpp"
#include "tests/configs/broken_cases.hpp"
#include "tests/configs/scratch.hpp"

namespace sluice::testing {
namespace {

const std::vector<Broken> kStructure{
    {"unknown section", "optimiser: {lr: 1}\n",
     "c.yaml:1:1: optimiser: unknown section; did you mean 'optimizer'?"},
    {"unknown section without a neighbour", "wibble: {lr: 1}\n",
     "c.yaml:1:1: wibble: unknown section, expected one of model, data, train, optimizer, "
     "schedule, zero, offload, recompute, parallel, memory, loss_scale, checkpoint, launch, "
     "output, base"},
    {"a key at the top level", "lr: 1e-3\n",
     "c.yaml:1:1: lr: unknown section; did you mean 'optimizer.lr'?"},
    {"a dotted key at the top level", "train.steps: 5\n",
     "c.yaml:1:1: train.steps: unknown section, write train: {steps: ...}"},
    {"unknown key",
     "zero:\n"
     "  stgae: 3\n",
     "c.yaml:2:3: zero.stgae: unknown key; did you mean 'stage'?"},
    {"unknown key without a neighbour",
     "recompute:\n"
     "  xyzzy: 1\n",
     "c.yaml:2:3: recompute.xyzzy: unknown key, expected one of mode"},
    {"another trainer's name of a key", "optimizer: {learning_rate: 1}\n",
     "c.yaml:1:13: optimizer.learning_rate: unknown key; did you mean 'optimizer.lr'?"},
    {"another trainer's name in another section", "train: {gradient_accumulation_steps: 4}\n",
     "c.yaml:1:9: train.gradient_accumulation_steps: unknown key; did you mean "
     "'train.global_batch'?"},
    {"DeepSpeed's place of a key", "zero: {stage: 3, offload_optimizer: {device: cpu}}\n",
     "c.yaml:1:18: zero.offload_optimizer: unknown key; did you mean 'offload.optimizer'?"},
    {"names of a config.json", "model: {num_heads: 4, num_hidden_layers: 2, n_embd: 8}\n",
     "c.yaml:1:9: model.num_heads: unknown key; did you mean 'model.heads'?\n"
     "c.yaml:1:23: model.num_hidden_layers: unknown key; did you mean 'model.layers'?\n"
     "c.yaml:1:45: model.n_embd: unknown key; did you mean 'model.hidden'?"},
    {"another trainer's name at the top level", "learning_rate: 1\n",
     "c.yaml:1:1: learning_rate: unknown section; did you mean 'optimizer.lr'?"},
    {"a DeepSpeed configuration",
     "{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"Adam\"}, \"zero_optimization\": "
     "{\"stage\": 2}}\n",
     "c.yaml: this is a DeepSpeed configuration: `sluice migrate c.yaml` makes a Sluice "
     "configuration of it"},
    {"a DeepSpeed configuration with comments",
     "// stage 2\n{\n\t\"train_batch_size\" : 8,  // all ranks\n\t\"fp16\": {\"enabled\": "
     "true}\n}\n",
     "c.yaml: this is a DeepSpeed configuration: `sluice migrate c.yaml` makes a Sluice "
     "configuration of it"},
    {"a broken file that speaks of DeepSpeed", "# was \"train_batch_size\"\ntrain: {steps: 3\n",
     "c.yaml:3:1: not YAML: end of map flow not found (a { without its })"},
    {"training arguments of the Trainer",
     "{\"output_dir\": \"out\", \"learning_rate\": 2e-5, \"deepspeed\": \"ds.json\"}\n",
     "c.yaml: these are training arguments of Hugging Face's Trainer: `sluice migrate ds.json "
     "--trainer c.yaml`, with the job's DeepSpeed file, makes a Sluice configuration of them"},
    {"a recipe of axolotl", "base_model: a\nadapter: lora\noutput_dir: out\n",
     "c.yaml: this is a file of axolotl, whose model, data and adapters would be lost: give its "
     "DeepSpeed file, `sluice migrate DS.json`, and batch, optimizer and schedule with --set"},
    {"a key of another section",
     "train:\n"
     "  lr: 1e-3\n",
     "c.yaml:2:3: train.lr: unknown key; did you mean 'optimizer.lr'?"},
    {"the wrong case",
     "train:\n"
     "  Steps: 5\n",
     "c.yaml:2:3: train.Steps: unknown key; did you mean 'steps'?"},
    {"a merge key",
     "zero:\n"
     "  <<: {stage: 1}\n",
     "c.yaml:2:3: zero.<<: merge keys are not read, use base:"},
    {"a merge key at the top level", "<<: {zero: {stage: 1}}\n",
     "c.yaml:1:1: <<: merge keys are not read, use base:"},
    {"a key twice",
     "zero:\n"
     "  stage: 1\n"
     "  stage: 2\n",
     "c.yaml:3:3: zero.stage: given twice, first in line 2"},
    {"a section twice",
     "zero: {stage: 1}\n"
     "train: {steps: 5}\n"
     "zero: {bucket_bytes: 1MiB}\n",
     "c.yaml:3:1: zero: given twice, first in line 1"},
    {"base twice",
     "base: ok.yaml\n"
     "base: ok.yaml\n",
     "c.yaml:2:1: base: given twice, first in line 1"},
    {"a section that is a number", "zero: 3\n",
     "c.yaml:1:7: zero: found '3', expected a map of stage, bucket_bytes, prefetch_units, "
     "persist_below, reduce_every, reduce_dtype"},
    {"a section that is a list", "zero: [3]\n",
     "c.yaml:1:7: zero: found a list, expected a map of stage, bucket_bytes, prefetch_units, "
     "persist_below, reduce_every, reduce_dtype"},
    {"a root that is a list",
     "- zero\n"
     "- train\n",
     "c.yaml:1:1: found a list, expected sections such as model:, data:, train:"},
    {"a root that is a word", "zero\n",
     "c.yaml:1:1: found 'zero', expected sections such as model:, data:, train:"},
    {"an empty file", "", "c.yaml: holds nothing, expected sections such as model:, data:, train:"},
    {"a file of comments",
     "# zero:\n"
     "#   stage: 1\n",
     "c.yaml: holds nothing, expected sections such as model:, data:, train:"},
    {"several at once, in three sections",
     "zero:\n"
     "  stage: 4\n"
     "  stgae: 1\n"
     "train:\n"
     "  dtype: fp8\n"
     "  steps: soon\n"
     "modle: {}\n",
     "c.yaml:2:10: zero.stage: '4' is out of range, expected a whole number from 0 to 3\n"
     "c.yaml:3:3: zero.stgae: unknown key; did you mean 'stage'?\n"
     "c.yaml:5:10: train.dtype: found 'fp8', expected one of fp32, bf16, fp16; did you mean "
     "'fp32'?\n"
     "c.yaml:6:10: train.steps: found 'soon', expected a whole number >= 0\n"
     "c.yaml:7:1: modle: unknown section; did you mean 'model'?"},
};

const std::vector<Broken> kDocuments{
    {"a tab in the indentation",
     "zero:\n"
     "\tstage: 1\n"
     "train:\n"
     "\tsteps: 5\n",
     "c.yaml:2:1: a tab in the indentation; YAML indents with spaces only\n"
     "c.yaml:4:1: a tab in the indentation; YAML indents with spaces only"},
    {"a control character",
     "zero:\n"
     "  stage: 1\004\n",
     "c.yaml:2:11: control character 0x04; a configuration is plain text"},
    {"a file that is not UTF-8",
     "output:\n"
     "  dir: caf\351\n",
     "c.yaml:2:11: byte 0xe9 is not UTF-8; save the file as UTF-8"},
    {"an open list",
     "data:\n"
     "  text: [a, b\n",
     "c.yaml:3:1: not YAML: end of sequence flow not found (a [ without its ])"},
    {"an open map", "zero: {stage: 1\n",
     "c.yaml:2:1: not YAML: end of map flow not found (a { without its })"},
    {"an open quote", "output: {dir: \"runs}\n",
     "c.yaml:2:1: not YAML: end of map flow not found (a { without its })"},
    {"a value of two colons",
     "output:\n"
     "  dir: a: b\n",
     "c.yaml:2:9: not YAML: illegal map value (check the indentation, and quote a value that holds "
     "': ')"},
    {"bad indentation",
     "zero:\n"
     "  stage: 1\n"
     " bucket_bytes: 5\n",
     "c.yaml:3:2: not YAML: end of map not found (check the indentation of this line and of the "
     "one above)"},
    {"a glob without quotes",
     "data:\n"
     "  text: **/*.py\n",
     "c.yaml:2:9: not YAML: the referenced anchor is not defined (a value that starts with * needs "
     "quotes)"},
    {"a reserved character",
     "output:\n"
     "  dir: @runs\n",
     "c.yaml:2:8: not YAML: unknown token (a value that starts with this character needs quotes)"},
    {"a tag",
     "train:\n"
     "  steps: !!int 5\n",
     "c.yaml:2:10: tag 'tag:yaml.org,2002:int'; write the value without a tag"},
    {"a key that is a list",
     "? [a, b]\n"
     ": 5\n",
     "c.yaml:1:3: a key that is not a name"},
    {"a second document",
     "zero: {stage: 1}\n"
     "---\n"
     "zero: {stage: 2}\n",
     "c.yaml:2:1: a second document; a configuration is one document"},
    {"an alias without an anchor", "zero: *other\n",
     "c.yaml:1:7: not YAML: the referenced anchor is not defined (a value that starts with * needs "
     "quotes)"},
    {"an alias inside itself", "data: {text: &a [x, *a]}\n",
     "c.yaml:1:21: an alias inside the value that it names"},
    {"an unset variable",
     "output:\n"
     "  dir: ${SLUICE_TEST_UNSET}/x\n",
     "c.yaml:2:8: output.dir: environment variable SLUICE_TEST_UNSET is not set, set it or write "
     "${SLUICE_TEST_UNSET:-default}"},
    {"a variable without an end", "output: {dir: \"${HOME\"}\n",
     "c.yaml:1:15: output.dir: '${HOME' lacks its '}', expected ${NAME}"},
    {"a variable that is no name", "output: {dir: \"${1X}\"}\n",
     "c.yaml:1:15: output.dir: '${1X}' is no variable, expected ${NAME} or ${NAME:-default}"},
    {"a default with a variable", "output: {dir: \"${A:-${B}}\"}\n",
     "c.yaml:1:15: output.dir: '${A:-${B}' is no variable, expected ${NAME} or ${NAME:-default}"},
    {"a variable of the wrong type", "zero: {stage: \"${SLUICE_TEST_WORD}\"}\n",
     "c.yaml:1:15: zero.stage: found 'three', expected a whole number from 0 to 3 (the text is "
     "from '${SLUICE_TEST_WORD}')"},
    {"a variable of control characters",
     "output:\n"
     "  dir: ${SLUICE_TEST_BELL}\n",
     "c.yaml:2:8: output.dir: environment variable SLUICE_TEST_BELL holds control characters or is "
     "not UTF-8, expected plain text"},
    {"a base that is not there",
     "base: nowhere.yaml\n"
     "zero: {stage: 1}\n",
     "c.yaml:1:7: base: 'nowhere.yaml' cannot be read: No such file or directory"},
    {"a base that is a folder", "base: .\n", "c.yaml:1:7: base: '.' is a folder, expected a file"},
    {"a base that is a list", "base: [ok.yaml]\n",
     "c.yaml:1:7: base: found a list, expected a file"},
    {"a base without a name",
     "base:\n"
     "zero: {stage: 1}\n",
     "c.yaml:1:1: base: found no value, expected a file"},
    {"a base of an unset variable", "base: ${SLUICE_TEST_UNSET}.yaml\n",
     "c.yaml:1:7: base: environment variable SLUICE_TEST_UNSET is not set, set it or write "
     "${SLUICE_TEST_UNSET:-default}"},
    {"its own base", "base: c.yaml\n",
     "c.yaml:1:7: base: c.yaml -> c.yaml is a cycle, expected a chain that ends"},
    {"a cycle", "base: cycle.yaml\n",
     "cycle.yaml:2:7: base: c.yaml -> cycle.yaml -> c.yaml is a cycle, expected a chain that ends"},
    {"a broken base and a broken file",
     "base: broken.yaml\n"
     "zero: {stage: 9}\n",
     "broken.yaml:2:16: train.steps: found 'x', expected a whole number >= 0\n"
     "c.yaml:2:15: zero.stage: '9' is out of range, expected a whole number from 0 to 3"},
};

const std::vector<Broken> kOverrides{
    {"--set of an unknown key",
     "data: {text: a.txt}\n",
     "--set zero.stgae=3: zero.stgae: unknown key; did you mean 'stage'?",
     {"zero.stgae=3"}},
    {"--set without a value",
     "data: {text: a.txt}\n",
     "--set zero.stage: expected section.key=value",
     {"zero.stage"}},
    {"--set without a key",
     "data: {text: a.txt}\n",
     "--set =3: expected section.key=value",
     {"=3"}},
    {"--set of nothing",
     "data: {text: a.txt}\n",
     "--set zero.stage=: zero.stage: found no value, expected a whole number from 0 to 3",
     {"zero.stage="}},
    {"--set of a bad value",
     "data: {text: a.txt}\n",
     "--set zero.stage=7: zero.stage: '7' is out of range, expected a whole number from 0 to 3\n"
     "--set train.dtype=fp23: train.dtype: found 'fp23', expected one of fp32, bf16, fp16; did you "
     "mean 'fp32'?",
     {"zero.stage=7", "train.dtype=fp23"}},
    {"--set of bad YAML",
     "data: {text: a.txt}\n",
     "--set data.text=[a: data.text: not YAML: end of sequence flow not found (a [ without its ])",
     {"data.text=[a"}},
    {"--set of a base",
     "data: {text: a.txt}\n",
     "--set base=ok.yaml: base: is read from a file only",
     {"base=ok.yaml"}},
    {"--set of a key too deep",
     "data: {text: a.txt}\n",
     "--set zero.stage.now=3: zero.stage.now: unknown key, expected one of stage, bucket_bytes, "
     "prefetch_units, persist_below, reduce_every, reduce_dtype",
     {"zero.stage.now=3"}},
    {"--set of a whole section",
     "data: {text: a.txt}\n",
     "--set zero={stage: 7, foo: 1}: zero.stage: '7' is out of range, expected a whole number from "
     "0 to 3\n"
     "--set zero={stage: 7, foo: 1}: zero.foo: unknown key, expected one of stage, bucket_bytes, "
     "prefetch_units, persist_below, reduce_every, reduce_dtype",
     {"zero={stage: 7, foo: 1}"}},
    {"--set of a section that is none",
     "data: {text: a.txt}\n",
     "--set zero=3: zero: found '3', expected a map of stage, bucket_bytes, prefetch_units, "
     "persist_below, reduce_every, reduce_dtype",
     {"zero=3"}},
    {"--set beside a broken file",
     "zero: {stage: 9}\n",
     "c.yaml:1:15: zero.stage: '9' is out of range, expected a whole number from 0 to 3\n"
     "--set train.steps=x: train.steps: found 'x', expected a whole number >= 0",
     {"train.steps=x"}},
};

class BrokenFile : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv("SLUICE_TEST_UNSET");
    setenv("SLUICE_TEST_WORD", "three", 1);
    setenv("SLUICE_TEST_BELL", "a\ab", 1);
    scratch_.write("ok.yaml", "train: {steps: 5}\n");
    scratch_.write("cycle.yaml", "zero: {stage: 1}\nbase: c.yaml\n");
    scratch_.write("broken.yaml", "base: ok.yaml\ntrain: {steps: x}\n");
  }

  void expect_messages(const std::vector<Broken>& cases) {
    for (const Broken& broken : cases) {
      SCOPED_TRACE(broken.name);
      scratch_.write("c.yaml", broken.yaml);
      try {
        (void)load_config("c.yaml", broken.sets);
        ADD_FAILURE() << "was accepted";
      } catch (const ConfigError& error) {
        EXPECT_EQ(error.what(), broken.message);
        EXPECT_EQ(error.exit_code(), 2);
      }
    }
  }

  Scratch scratch_;
};

TEST_F(BrokenFile, SectionsAndKeys) { expect_messages(kStructure); }
TEST_F(BrokenFile, Values) { expect_messages(broken_values()); }
TEST_F(BrokenFile, YamlEnvironmentAndBase) { expect_messages(kDocuments); }
TEST_F(BrokenFile, Overrides) { expect_messages(kOverrides); }

TEST_F(BrokenFile, ThatIsNotThere) {
  try {
    (void)load_config("nowhere.yaml", {"zero.stage=9"});
    FAIL() << "was accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(
        error.what(),
        "nowhere.yaml: cannot be read: No such file or directory\n"
        "--set zero.stage=9: zero.stage: '9' is out of range, expected a whole number from 0 "
        "to 3");
  }
}

// A few bytes that would unfold into billions of values.
TEST_F(BrokenFile, AliasBomb) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int level = 1; level < 9; ++level) {
    const std::string name = std::to_string(level);
    const std::string alias = std::string("*a").append(std::to_string(level - 1));
    bomb.append("a").append(name).append(": &a").append(name).append(" [").append(alias);
    for (int i = 0; i < 9; ++i) bomb.append(", ").append(alias);
    bomb.append("]\n");
  }
  expect_messages({{"bomb", bomb, "c.yaml:5:10: more than 20000 values, aliases included"}});
}

// Many aliases of one long text.
TEST_F(BrokenFile, AliasBombOfText) {
  std::string bomb = "data:\n  text: [&a " + std::string(500'000, 'x');
  for (int i = 0; i < 1000; ++i) bomb += ", *a";
  expect_messages(
      {{"bomb", bomb + "]\n", "c.yaml:2:500019: more than 20000 values, aliases included"}});
}

TEST_F(BrokenFile, TooDeepOrTooLarge) {
  expect_messages({
      {"deep lists", "zero: " + std::string(50'000, '[') + std::string(50'000, ']'),
       "c.yaml:1:38: nested more than 32 levels deep"},
      {"a large file", "# " + std::string(std::size_t{1} << 20, 'x'),
       "c.yaml: larger than 1 MiB; this is not a configuration"},
  });
}

TEST_F(BrokenFile, WithHundredsOfMistakesSaysHowMany) {
  std::string text = "zero:\n";
  for (int i = 0; i < 250; ++i) text += "  qqqqqqqqqq" + std::to_string(i) + ": 1\n";
  scratch_.write("c.yaml", text);
  try {
    (void)load_config("c.yaml", {});
    FAIL() << "was accepted";
  } catch (const ConfigError& error) {
    EXPECT_TRUE(std::string(error.what()).ends_with("\nand 150 more mistakes"));
  }
}

// A chain of files is bounded even where no file comes twice.
TEST_F(BrokenFile, WithAnEndlessChainOfBases) {
  const auto name = [](int i) {
    return std::string("n").append(std::to_string(i)).append(".yaml");
  };
  for (int i = 0; i < 20; ++i) {
    scratch_.write(name(i), std::string("base: ").append(name(i + 1)).append("\n"));
  }
  expect_messages(
      {{"chain", "base: n0.yaml\n", "n14.yaml:1:7: base: a chain of more than 16 files"}});
}

}  // namespace
}  // namespace sluice::testing
