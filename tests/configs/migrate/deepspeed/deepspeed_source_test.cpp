// A path or base64, as --deepspeed_config takes them.
#include "configs/migrate/deepspeed/deepspeed_source.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/configs/scratch.hpp"

namespace sluice::migrate {
namespace {

std::string refusal(const std::string& argument) {
  try {
    (void)load_deepspeed_source(argument);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(DeepSpeedSource, ReadsAFile) {
  const testing::Scratch scratch;
  testing::Scratch::write("ds.json", "{}\n");
  const DeepSpeedSource source = load_deepspeed_source("ds.json");
  EXPECT_EQ(source.name, "ds.json");
  EXPECT_EQ(source.text, "{}\n");
}

TEST(DeepSpeedSource, ReadsBase64) {
  // {"train_batch_size": 8, "x": "ÿ?~"} in the urlsafe alphabet.
  const DeepSpeedSource source =
      load_deepspeed_source("eyJ0cmFpbl9iYXRjaF9zaXplIjogOCwgIngiOiAiw78_fiJ9");
  EXPECT_EQ(source.name, "base64");
  EXPECT_EQ(source.text, "{\"train_batch_size\": 8, \"x\": \"\xc3\xbf?~\"}");
}

TEST(DeepSpeedSource, DecodesBase64) {
  EXPECT_EQ(decode_base64("YQ=="), "a");
  EXPECT_EQ(decode_base64("YWI="), "ab");
  EXPECT_EQ(decode_base64("YWJj"), "abc");
  EXPECT_EQ(decode_base64("-_-_"), decode_base64("+/+/"));
  for (const char* text : {"", "YQ", "YQ=", "Y===", "YW=j", "Y Q=", "YQ==\n"}) {
    EXPECT_EQ(decode_base64(text), std::nullopt) << text;
  }
}

TEST(DeepSpeedSource, RefusesWhatIsNeither) {
  const testing::Scratch scratch;
  std::filesystem::create_directory("folder");
  EXPECT_EQ(refusal("ds.json"),
            "no file 'ds.json', and the text is no base64 of a configuration; name a DeepSpeed "
            "configuration, or give its JSON in urlsafe base64");
  EXPECT_EQ(refusal("folder"),
            "cannot read the DeepSpeed configuration folder: the path is a folder; name the file");
}

}  // namespace
}  // namespace sluice::migrate
