// Templates whose placeholders are bare words in capitals.
#include <gtest/gtest.h>

#include "configs/migrate/template_check.hpp"
#include "tests/configs/migrate/deepspeed/migrated.hpp"

namespace sluice::migrate {
namespace {

using Lines = std::vector<std::string>;

TEST(TemplateWords, AreSaidOnce) {
  EXPECT_EQ(
      errors_of(migrated("{\"train_batch_size\": GBSIZE,\n \"steps_per_print\": LOG_INTERVAL,\n"
                         " \"zero_optimization\": {\"stage\": \"ZERO_STAGE\"},\n"
                         " \"fp16\": {\"enabled\": CONFIG_FP16_ENABLED,\n}}")),
      (Lines{"f:1:2: train_batch_size: the file is a template: 'GBSIZE' is a placeholder, with "
             "3 more; fill the template in first, then migrate the result"}));
}

TEST(TemplateWords, BesideOtherMistakes) {
  EXPECT_EQ(
      errors_of(migrated(R"({"train_batch_size": "GBSIZE", "bf16": {"enabled": "NONE"}})")),
      (Lines{"f:1:2: train_batch_size: the file is a template: 'GBSIZE' is a placeholder; fill "
             "the template in first, then migrate the result",
             "f:1:41: bf16.enabled: found \"NONE\"; write true or false"}));
}

TEST(TemplateWords, AreCapitalsDigitsAndUnderscores) {
  for (const char* const text : {"LR", "MBSIZE,", "ZERO_STAGE_2"}) {
    EXPECT_TRUE(placeholder_word(text)) << text;
  }
  for (const char* const text :
       {"", ",", "X", "_A", "2A", "Lr", "A-B", "A B", "A,,", "TRUE", "NULL,"}) {
    EXPECT_FALSE(placeholder_word(text)) << text;
  }
}

}  // namespace
}  // namespace sluice::migrate
