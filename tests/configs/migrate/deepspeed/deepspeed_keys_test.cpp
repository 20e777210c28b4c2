// The table: every row is sound, and the rows are those of DeepSpeed 0.19.8.
#include "configs/migrate/deepspeed/deepspeed_keys.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <variant>

#include "configs/migrate/deepspeed/deepspeed_values.hpp"

namespace sluice::migrate {
namespace {

std::string section_of(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

TEST(DeepSpeedKeys, PathsAndAliasesAreDifferent) {
  std::set<std::string> seen;
  const auto add = [&seen](const std::string& path, const DeepSpeedKey& key) {
    if (key.variants.empty()) {
      EXPECT_TRUE(seen.insert(path).second) << path;
    }
    for (const std::string_view variant : key.variants) {
      EXPECT_TRUE(seen.insert(path + " of " + std::string(variant)).second) << path << variant;
    }
  };
  for (const DeepSpeedKey& key : deepspeed_keys()) {
    add(key.path, key);
    if (key.alias.empty()) continue;
    const std::string section = section_of(key.path);
    add(section.empty() ? key.alias : section + "." + key.alias, key);
  }
}

TEST(DeepSpeedKeys, EverySectionIsARowBeforeItsKeys) {
  std::set<std::string> sections{""};
  for (const DeepSpeedKey& key : deepspeed_keys()) {
    EXPECT_TRUE(sections.contains(section_of(key.path))) << key.path;
    if (key.type == KeyType::kSection) sections.insert(key.path);
  }
}

TEST(DeepSpeedKeys, EveryRowHasANoteOfOneLine) {
  for (const DeepSpeedKey& key : deepspeed_keys()) {
    EXPECT_FALSE(key.note.empty()) << key.path;
    EXPECT_LE(key.note.size(), 95U) << key.path;
    EXPECT_EQ(key.note.find('\n'), std::string_view::npos) << key.path;
  }
}

TEST(DeepSpeedKeys, DefaultsAreValuesOfTheirType) {
  for (const DeepSpeedKey& key : deepspeed_keys()) {
    if (key.type == KeyType::kSection) continue;
    // A required parameter has no default; null stands for the absent value.
    if (key.is_required || key.path == "torch_autocast.dtype") continue;
    for (const DeepSpeedVersion& version : {DeepSpeedVersion{0, 1, 0}, kNewestDeepSpeed}) {
      const auto read = read_value(key, value_of_json(key.fallback_of(version)));
      const Refusal* refusal = std::get_if<Refusal>(&read);
      EXPECT_EQ(refusal, nullptr) << key.path << ": " << (refusal ? refusal->what : "");
    }
  }
}

TEST(DeepSpeedKeys, DefaultsChangeWithTheVersion) {
  const auto at = [](const char* path, DeepSpeedVersion version) {
    return std::string(find_deepspeed_key(path)->fallback_of(version));
  };
  EXPECT_EQ(at("gradient_clipping", {0, 19, 2}), "0.0");
  EXPECT_EQ(at("gradient_clipping", {0, 19, 3}), "1.0");
  EXPECT_EQ(at("bf16.check_grad_overflow", {0, 19, 2}), "false");
  EXPECT_EQ(at("bf16.check_grad_overflow", {0, 19, 3}), "true");
  EXPECT_EQ(at("bf16.immediate_grad_update", {0, 17, 0}), "true");
  EXPECT_EQ(at("bf16.immediate_grad_update", {0, 17, 1}), "false");
  EXPECT_EQ(at("steps_per_print", {0, 15, 1}), "10");
  EXPECT_EQ(at("steps_per_print", {0, 15, 2}), "null");
  for (const char* path : {"zero_optimization.offload_param.pin_memory",
                           "zero_optimization.offload_optimizer.pin_memory"}) {
    EXPECT_EQ(at(path, {0, 19, 4}), "false");
    EXPECT_EQ(at(path, {0, 19, 5}), "true");
  }
}

// Number of keys of each section of 0.19.8, counted in DeepSpeed's source.
TEST(DeepSpeedKeys, SectionsHaveAllFields) {
  const std::map<std::string, std::size_t> counts{
      {"zero_optimization", 43},
      {"zero_optimization.offload_param", 6},
      {"zero_optimization.offload_optimizer", 10},
      {"zero_optimization.zenflow", 10},
      {"zero_optimization.leaf_module", 3},
      {"fp16", 9},
      {"bf16", 5},
      {"aio", 6},
      {"activation_checkpointing", 6},
      {"comms_logger", 5},
      {"tensorboard", 3},
      {"wandb", 4},
      {"csv_monitor", 3},
      {"comet", 9},
      {"compile", 18},
      {"hybrid_engine", 7},
      {"weight_quantization", 6},
      {"flops_profiler", 7},
      {"tensor_parallel", 11},
      {"expert_parallel", 36},
  };
  std::map<std::string, std::size_t> found;
  for (const DeepSpeedKey& key : deepspeed_keys()) {
    const bool is_known = !key.removed || kNewestDeepSpeed < *key.removed;
    if (is_known) ++found[section_of(key.path)];
  }
  for (const auto& [section, count] : counts) EXPECT_EQ(found[section], count) << section;
}

TEST(DeepSpeedKeys, BothNamesFindARow) {
  const DeepSpeedKey* key = find_deepspeed_key("zero_optimization.prefetch_bucket_size");
  ASSERT_NE(key, nullptr);
  EXPECT_EQ(find_deepspeed_key("zero_optimization.stage3_prefetch_bucket_size"), key);
  EXPECT_EQ(find_deepspeed_key("bfloat16")->path, "bf16");
  EXPECT_EQ(find_deepspeed_key("zero_optimization.wibble"), nullptr);
}

TEST(DeepSpeedKeys, ParametersBelongToTypes) {
  EXPECT_EQ(find_deepspeed_key("optimizer.params.lr", "adam")->fallback, "1e-3");
  EXPECT_EQ(find_deepspeed_key("optimizer.params.lr", "adagrad")->fallback, "1e-2");
  EXPECT_EQ(find_deepspeed_key("optimizer.params.momentum", "adam"), nullptr);
  EXPECT_EQ(find_deepspeed_key("scheduler.params.warmup_max_lr", "WarmupLR")->fallback, "null");
  EXPECT_EQ(find_deepspeed_key("scheduler.params.warmup_max_lr", "WarmupDecayLR")->fallback,
            "0.001");
}

TEST(DeepSpeedKeys, NamesOfASectionFollowTheVersion) {
  const auto knows = [](std::string_view name, const DeepSpeedVersion& version) {
    for (const std::string_view known : names_in_section("", "", version)) {
      if (known == name) return true;
    }
    return false;
  };
  EXPECT_TRUE(knows("amp", {0, 19, 7}));
  EXPECT_FALSE(knows("amp", {0, 19, 8}));
  EXPECT_TRUE(knows("nebula", {0, 19, 6}));
  EXPECT_FALSE(knows("nebula", {0, 19, 7}));
  EXPECT_FALSE(knows("managed_gradient_accumulation", {0, 19, 3}));
}

TEST(DeepSpeedVersion, Reads) {
  EXPECT_EQ(parse_deepspeed_version("0.19.8"), kNewestDeepSpeed);
  EXPECT_EQ(parse_deepspeed_version("v0.15.2+cu121"), (DeepSpeedVersion{0, 15, 2}));
  EXPECT_EQ(kNewestDeepSpeed.text(), "0.19.8");
  for (const char* text : {"", "0", "0.19", "0.19.x", "0.19.8.1", "-1.0.0", "0,19,8"}) {
    EXPECT_EQ(parse_deepspeed_version(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace sluice::migrate
