// The table itself, and the configurations that ship.
#include "configs/schema.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "configs/reader.hpp"
#include "configs/validate.hpp"
#include "configs/value.hpp"
#include "tests/configs/scratch.hpp"

namespace sluice::testing {
namespace {

// The keys that the contract fixes.
const std::vector<std::string> kContract{"model.type",
                                         "model.layers",
                                         "model.hidden",
                                         "model.heads",
                                         "model.kv_heads",
                                         "model.ffn",
                                         "model.vocab",
                                         "model.seq",
                                         "model.tie_embeddings",
                                         "model.dropout",
                                         "model.from",
                                         "data.text",
                                         "data.train",
                                         "data.valid",
                                         "data.split",
                                         "data.tokenizer",
                                         "train.steps",
                                         "train.micro_batch",
                                         "train.global_batch",
                                         "train.accumulation_order",
                                         "train.dtype",
                                         "train.seed",
                                         "train.clip",
                                         "train.eval_every",
                                         "train.eval_steps",
                                         "train.log_every",
                                         "optimizer.type",
                                         "optimizer.lr",
                                         "optimizer.betas",
                                         "optimizer.eps",
                                         "optimizer.weight_decay",
                                         "schedule.type",
                                         "schedule.warmup_steps",
                                         "schedule.min_lr",
                                         "schedule.decay_steps",
                                         "zero.stage",
                                         "zero.bucket_bytes",
                                         "zero.prefetch_units",
                                         "zero.persist_below",
                                         "offload.optimizer",
                                         "offload.parameters",
                                         "offload.gradients",
                                         "offload.activations",
                                         "offload.nvme_path",
                                         "offload.device_fraction",
                                         "offload.host_fraction",
                                         "offload.states_dtype",
                                         "recompute.mode",
                                         "parallel.tensor",
                                         "parallel.sequence",
                                         "parallel.pipeline",
                                         "parallel.virtual_stages",
                                         "parallel.schedule",
                                         "parallel.data",
                                         "parallel.stage_layers",
                                         "memory.device",
                                         "memory.host",
                                         "memory.nvme",
                                         "loss_scale.initial",
                                         "loss_scale.window",
                                         "loss_scale.hysteresis",
                                         "loss_scale.min",
                                         "checkpoint.dir",
                                         "checkpoint.every",
                                         "checkpoint.keep",
                                         "checkpoint.async",
                                         "checkpoint.time_limit",
                                         "launch.nproc",
                                         "launch.hostfile",
                                         "launch.backend",
                                         "launch.max_restarts",
                                         "launch.timeout",
                                         "output.dir",
                                         "output.tensorboard",
                                         "output.trace"};

Record blank_record(const Rules& rules) {
  Record record;
  for (const RecordField& field : *rules.fields) record.values.push_back(field.fallback);
  return record;
}

TEST(Schema, HoldsTheContract) {
  for (const std::string& path : kContract) EXPECT_NE(find_key(path), nullptr) << path;
  EXPECT_EQ(find_key("zero"), nullptr);
  EXPECT_EQ(find_key("zero.stgae"), nullptr);
  EXPECT_EQ(find_section("zer"), nullptr);
}

TEST(Schema, EveryKeyIsSoundAndItsDefaultKeepsToItsRules) {
  std::set<std::string> paths;
  for (const Section& section : schema()) {
    EXPECT_FALSE(section.doc.empty()) << section.name;
    for (const Key& key : section.keys) {
      SCOPED_TRACE(key.path());
      EXPECT_TRUE(paths.insert(key.path()).second);
      EXPECT_TRUE(key.doc.ends_with('.'));
      const Value value = key.get(RunConfig{});
      RunConfig run;
      key.set(run, value);
      EXPECT_EQ(key.get(run), value);
      const std::string text = write_value(key.rules, value);
      if (is_list_type(key.rules.type) || key.rules.type == KeyType::kPath)
        continue;  // quoted or bracketed
      const auto read = read_scalar(key.rules, text);
      ASSERT_TRUE(std::holds_alternative<Value>(read)) << text;
      EXPECT_EQ(std::get<Value>(read), value);
    }
  }
}

// No key's field is bound twice: setting one leaves all others alone.
TEST(Schema, EveryKeyHasAFieldOfItsOwn) {
  const RunConfig defaults;
  for (const Section& section : schema()) {
    for (const Key& key : section.keys) {
      RunConfig run;
      const Value value = key.get(run);
      if (const auto* flag = std::get_if<bool>(&value)) key.set(run, !*flag);
      if (const auto* whole = std::get_if<std::int64_t>(&value)) key.set(run, *whole + 1);
      if (const auto* number = std::get_if<double>(&value)) key.set(run, *number + 1);
      const bool interval = key.rules.type == KeyType::kInterval ||
                            key.rules.type == KeyType::kSteps || key.rules.type == KeyType::kRate;
      if (std::holds_alternative<std::string>(value))
        key.set(run, std::string(interval ? "7" : "x"));
      if (std::holds_alternative<std::vector<double>>(value))
        key.set(run, std::vector<double>{7, 8});
      if (std::holds_alternative<std::vector<std::int64_t>>(value)) {
        key.set(run, std::vector<std::int64_t>{7, 8});
      }
      if (std::holds_alternative<std::vector<std::string>>(value)) {
        key.set(run, std::vector<std::string>{"x"});
      }
      if (std::holds_alternative<std::vector<Record>>(value)) {
        key.set(run, std::vector<Record>{blank_record(key.rules)});
      }
      for (const Section& other : schema()) {
        for (const Key& untouched : other.keys) {
          EXPECT_EQ(untouched.get(run) != untouched.get(defaults), untouched.path() == key.path())
              << key.path() << " and " << untouched.path();
        }
      }
    }
  }
}

TEST(Shipped, EveryConfigurationLoadsAndHolds) {
  for (const char* const folder : {"configs", "examples/parallel"}) {
    int found = 0;
    for (const auto& file :
         std::filesystem::directory_iterator(std::filesystem::path(SLUICE_SOURCE_DIR) / folder)) {
      if (file.path().extension() != ".yaml") continue;
      SCOPED_TRACE(file.path().filename().string());
      const LoadedConfig loaded = load_config(file.path().string(), {});
      validate(loaded, std::max(1, loaded.run.launch.nproc));
      ++found;
    }
    EXPECT_GE(found, 1) << folder;
  }
}

}  // namespace
}  // namespace sluice::testing
