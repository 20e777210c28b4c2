// The reference says what the schema has.
#include "configs/reference.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/error.hpp"
#include "configs/reader.hpp"
#include "configs/value.hpp"
#include "tests/configs/scratch.hpp"

namespace sluice::testing {
namespace {

TEST(Reference, TheDocumentIsTheSchema) {
  std::ifstream file(SLUICE_SOURCE_DIR "/docs/configuration.md", std::ios::binary);
  const std::string written{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_TRUE(written == reference_markdown())
      << "docs/configuration.md is not what the schema says; write it again:\n"
         "    ./sluice explain --markdown > docs/configuration.md";
}

TEST(Reference, EveryExampleIsAValueOfItsKey) {
  Scratch scratch;
  Scratch::write("c.yaml", "data: {text: a.txt}\n");
  for (const Section& section : schema()) {
    for (const Key& key : section.keys) {
      const std::string example = example_of(key);
      EXPECT_FALSE(example.empty() || example == "\"\"" || example == "[]") << key.path();
      EXPECT_NE(example, key.rules.zero_word) << key.path();
      EXPECT_NO_THROW((void)load_config("c.yaml", {key.path() + "=" + example})) << example;
    }
  }
}

TEST(Reference, ExplainsAKeyASectionAndAll) {
  EXPECT_EQ(explain("train.clip"),
            "train.clip: Largest global gradient norm; 0: no clipping, and a GPU may need\n"
            "  less memory.\n"
            "  default   1\n"
            "  values    a number >= 0\n"
            "  effect    always\n"
            "  example   train: {clip: 0.5}\n");
  EXPECT_EQ(explain("clip"), explain("train.clip"));
  EXPECT_NE(explain("schedule.warmup_steps").find("unit      optimizer steps, or a share"),
            std::string::npos);
  EXPECT_NE(explain("offload.nvme_path").find("effect    only where a state lives on nvme"),
            std::string::npos);
  EXPECT_EQ(explain("base"),
            "base: Another configuration whose values hold where this one says nothing;\n"
            "  relative to this file. If this file is reached by a symbolic link, the folder\n"
            "  of the link comes first, then that of the file itself.\n"
            "  example   base: file.yaml\n");
  for (const Section& section : schema()) {
    const std::string text = explain(section.name);
    for (const Key& key : section.keys) {
      EXPECT_NE(text.find("\n  " + std::string(key.name) + ": "), std::string::npos) << key.path();
    }
    EXPECT_NE(("\n" + explain("")).find("\n  " + std::string(section.name) + " "),
              std::string::npos);
  }
}

TEST(Reference, AnUnknownNameGetsTheNearest) {
  const auto error = [](const char* name) -> std::string {
    try {
      (void)explain(name);
    } catch (const ConfigError& thrown) {
      return thrown.what();
    }
    return "";
  };
  EXPECT_EQ(error("train.clp"),
            "explain: there is no key or section 'train.clp'; did you mean 'train.clip'?");
  EXPECT_EQ(error("ofload"),
            "explain: there is no key or section 'ofload'; did you mean 'offload'?");
  EXPECT_EQ(error("warmup_step"),
            "explain: there is no key or section 'warmup_step'; did you mean 'warmup_steps'?");
  EXPECT_EQ(error("zzzzzzzz"),
            "explain: there is no key or section 'zzzzzzzz'; `sluice explain` lists the sections");
}

}  // namespace
}  // namespace sluice::testing
