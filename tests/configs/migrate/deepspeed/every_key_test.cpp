// Every key of the table, with another value than its default: one key of the result, and a target
// for each mapped one.
#include <gtest/gtest.h>

#include <set>

#include "configs/migrate/deepspeed/deepspeed_keys.hpp"
#include "tests/configs/migrate/deepspeed/migrated.hpp"

namespace sluice::migrate {
namespace {

// A value of the key's type that is not the default.
std::string other_value(const DeepSpeedKey& key) {
  switch (key.type) {
    case KeyType::kBool:
      return key.fallback == "true" ? "false" : "true";
    case KeyType::kInt:
    case KeyType::kIntOrAuto:
      if (key.path == "train_batch_size") return "32";
      return key.fallback == "2" ? "3" : "2";
    case KeyType::kFloat:
      if (key.path.ends_with("warmup_min_lr")) return "1e-4";
      return key.most ? "0.25" : "0.5";
    case KeyType::kChoice:
      for (const std::string_view word : key.choices) {
        if ("\"" + std::string(word) + "\"" != key.fallback) return "\"" + std::string(word) + "\"";
      }
      return "null";
    case KeyType::kDtype:
      return "\"fp32\"";
    case KeyType::kList:
      return key.path.ends_with("betas") ? "[0.5, 0.6]" : "[1]";
    case KeyType::kTexts:
      return key.choices.empty() ? "[\"x\"]" : "[\"" + std::string(key.choices[0]) + "\"]";
    case KeyType::kObject:
    case KeyType::kSection:
      return "{\"x\": 1}";
    case KeyType::kText:
    case KeyType::kAny:
      break;
  }
  if (key.path == "optimizer.type") return "\"AdamW\"";
  if (key.path == "scheduler.type") return "\"WarmupLR\"";
  return "\"x\"";
}

using Tree = std::map<std::string, std::string>;  // path -> JSON

void put(std::string& text, const Tree& values, const std::string& section) {
  std::set<std::string> subsections;
  bool first = true;
  const std::string prefix = section.empty() ? "" : section + ".";
  for (const auto& [path, json] : values) {
    if (!path.starts_with(prefix)) continue;
    const std::string rest = path.substr(prefix.size());
    const std::size_t dot = rest.find('.');
    if (dot != std::string::npos) {
      subsections.insert(rest.substr(0, dot));
      continue;
    }
    text += (first ? "" : ", ") + std::string("\"") + rest + "\": " + json;
    first = false;
  }
  for (const std::string& name : subsections) {
    text += (first ? "" : ", ") + std::string("\"") + name + "\": {";
    put(text, values, prefix + name);
    text += "}";
    first = false;
  }
}

std::string text_of(const Tree& values) {
  std::string text = "{";
  put(text, values, "");
  return text + "}";
}

// A type of the configuration that takes the parameters of a variant.
std::string type_name(const std::string& variant) {
  for (const char* const name : {"SGD", "Adam", "AdamW", "Lion", "Adagrad", "Lamb", "Muon"}) {
    std::string small(name);
    for (char& c : small) c = static_cast<char>(std::tolower(c));
    if (small == variant) return name;
  }
  return variant;
}

// What the key needs around it to have an effect.
Tree surroundings(const DeepSpeedKey& key, const std::string& variant) {
  Tree values{{"train_micro_batch_size_per_gpu", "4"},
              {"zero_optimization.stage", "3"},
              {"zero_allow_untested_optimizer", "true"},
              {"optimizer.type", "\"Adam\""},
              {"optimizer.params.lr", "1e-3"}};
  if (key.path.starts_with("optimizer.params.")) {
    values["optimizer.type"] = "\"" + type_name(variant) + "\"";
    if (variant == "lamb") values["fp16.enabled"] = "true";
  }
  if (key.path.starts_with("scheduler.params.")) {
    values["scheduler.type"] = "\"" + variant + "\"";
    for (const DeepSpeedKey& row : deepspeed_keys()) {
      if (row.is_required && row.is_of(variant)) values[row.path] = "1000";
    }
  }
  if (key.path == "scheduler.type") values["scheduler.params.warmup_num_steps"] = "5";
  for (const char* const section : {"fp16", "bf16", "tensorboard", "torch_autocast"}) {
    if (key.path.starts_with(std::string(section) + ".")) {
      values[std::string(section) + ".enabled"] = "true";
    }
  }
  if (key.path == "bf16.bf16_optimizer_states") {
    values["bf16.bf16_master_weights_and_grads"] = "true";
  }
  const bool reads_nvme = key.path.starts_with("aio.") || key.path.ends_with(".nvme_path");
  for (const char* const section : {"offload_optimizer", "offload_param"}) {
    const std::string path = "zero_optimization." + std::string(section);
    if (!reads_nvme && !key.path.starts_with(path)) continue;
    values[path + ".device"] = "\"nvme\"";
    values[path + ".nvme_path"] = "\"/x\"";
  }
  return values;
}

struct Case {
  const DeepSpeedKey* key;
  std::string variant;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DeepSpeedKey& key : deepspeed_keys()) {
    if (key.variants.empty()) all.push_back({&key, ""});
    for (const std::string_view variant : key.variants) all.push_back({&key, std::string(variant)});
  }
  return all;
}

TEST(EveryKey, IsOneKeyOfTheResult) {
  int with_target = 0;
  for (const Case& item : cases()) {
    const DeepSpeedKey& key = *item.key;
    if (key.removed && key.removed->text() != "0.16.4" && key.kind != KeyClass::kRemoved) continue;
    Tree values = surroundings(key, item.variant);
    if (key.type == KeyType::kSection) {
      std::erase_if(values,
                    [&key](const auto& value) { return value.first.starts_with(key.path); });
    }
    values[key.path] = key.type == KeyType::kSection ? "{}" : other_value(key);
    const std::string text = text_of(values);
    SCOPED_TRACE(key.path + " " + item.variant + ": " + text);
    const Migration migration = migrated(text, {.parse = {.world = 8}, .hidden = 64});
    std::map<std::string, int> seen;
    for (const MigratedKey& migrated_key : migration.keys) ++seen[migrated_key.path];
    for (const auto& [path, json] : values) EXPECT_EQ(seen[path], 1) << path;
    const MigratedKey& result = key_of(migration, key.path);
    EXPECT_TRUE(result.is_written);
    EXPECT_FALSE(result.note.empty());
    if (result.kind != KeyClass::kMapped) continue;
    EXPECT_EQ(errors_of(migration), std::vector<std::string>{});
    EXPECT_FALSE(result.to.empty());
    ++with_target;
  }
  EXPECT_GE(with_target, 45);
}

TEST(EveryKey, IsEffective) {
  const Migration migration =
      migrated("{train_micro_batch_size_per_gpu: 4}", {.parse = {.world = 2}});
  EXPECT_EQ(migration.effective.at("train_batch_size"), "8");
  EXPECT_EQ(migration.effective.at("gradient_accumulation_steps"), "1");
  EXPECT_EQ(migration.effective.at("gradient_clipping"), "1.0");
  EXPECT_GE(migration.effective.size(), 200U);
}

}  // namespace
}  // namespace sluice::migrate
