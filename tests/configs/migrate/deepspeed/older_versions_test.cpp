// Values and keys that only some versions of DeepSpeed take.
#include <gtest/gtest.h>

#include "configs/migrate/deepspeed/deepspeed_config.hpp"
#include "tests/configs/migrate/deepspeed/migrated.hpp"

namespace sluice::migrate {
namespace {

using Lines = std::vector<std::string>;

DeepSpeedConfig parse(const std::string& text, DeepSpeedVersion version) {
  const HjsonDocument document = read_hjson(text);
  EXPECT_TRUE(document.problems.empty()) << text;
  return parse_deepspeed(document.root, {.version = version});
}

std::string complaint(const std::string& keys, DeepSpeedVersion version) {
  return parse("{train_batch_size: 8, " + keys + "}", version).error_text("c");
}

TEST(OlderVersions, Fp16TookAnyLeastScale) {
  constexpr DeepSpeedVersion kOld{0, 17, 0};
  for (const char* const scale : {"1e-10", "0.5"}) {
    const std::string keys = std::string("fp16: {enabled: true, min_loss_scale: ") + scale +
                             "}, "
                             "zero_optimization: {stage: 1}, optimizer: {type: \"Adam\"}";
    const Migration migration =
        migrated("{train_micro_batch_size_per_gpu: 8, " + keys + "}", {.parse = {.version = kOld}});
    EXPECT_EQ(errors_of(migration), Lines{});
    EXPECT_EQ(settings_of(migration).at("loss_scale.min"), scale);
    EXPECT_EQ(complaint(keys, {0, 17, 1}),
              std::string("c:1:45: fp16.min_loss_scale: found ") + scale +
                  "; write a whole number; DeepSpeed before 0.17.1 takes the value, name the "
                  "version with --from-version");
  }
  EXPECT_EQ(
      complaint("fp16: {min_loss_scale: [1]}", kOld),
      "c:1:30: fp16.min_loss_scale: found a list, which only DeepSpeed's autotuner takes as a "
      "search space; write a number");
}

TEST(OlderVersions, BucketsOfNoElements) {
  const std::string keys = "zero_optimization: {stage: 2, reduce_bucket_size: 0}";
  EXPECT_EQ(complaint(keys, {0, 19, 7}),
            "c:1:53: zero_optimization.reduce_bucket_size: 0 is out of range; write a whole number "
            ">= 1; DeepSpeed before 0.19.7 takes the value, name the version with --from-version");
  const Migration migration =
      migrated("{train_micro_batch_size_per_gpu: 8, optimizer: {type: \"Adam\"}, " + keys + "}",
               {.parse = {.version = {0, 19, 6}}});
  EXPECT_EQ(errors_of(migration), Lines{});
  EXPECT_EQ(class_and_note(migration, "zero_optimization.reduce_bucket_size"),
            "changed: zero.bucket_bytes keeps Sluice's default: DeepSpeed reduces each gradient "
            "alone");
  EXPECT_EQ(settings_of(migration).count("zero.bucket_bytes"), 0U);
}

// 0.13.2 to 0.14.3 took enabled, backend and kwargs, 0.14.4 to 0.16.5 read no section.
TEST(OlderVersions, CompileOfTheModel) {
  const std::string keys = "compile: {enabled: true, backend: \"inductor\", kwargs: {mode: 1}}";
  EXPECT_EQ(complaint(keys, {0, 14, 0}), "");
  const DeepSpeedConfig config = parse("{train_batch_size: 8, " + keys + "}", {0, 16, 0});
  EXPECT_EQ(config.error_text("c"), "");
  EXPECT_EQ(config.findings[1].note,
            "DeepSpeed has removed this key in 0.14.4; 0.16.0 ignores the key and says nothing");
  EXPECT_EQ(
      complaint("compile: {backend: \"inductor\"}", kNewestDeepSpeed),
      "c:1:33: compile.backend: DeepSpeed has removed this key in 0.14.4, the file is read as "
      "0.19.8; remove the key, or name the version of DeepSpeed with --from-version");
  EXPECT_EQ(complaint("compile: {disable: false}", kNewestDeepSpeed),
            "c:1:33: compile.disable: no key of compile: DeepSpeed raises an error since 0.16.6, "
            "older versions ignore the key; remove the key, or name the version with "
            "--from-version");
  EXPECT_EQ(complaint("compile: {disable: false}", {0, 16, 0}), "");
}

}  // namespace
}  // namespace sluice::migrate
