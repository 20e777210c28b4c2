// Writes rows of the key table: one function for each part of the configuration. Only for
// deepspeed_keys.cpp and the keys_*.cpp sources.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "configs/migrate/deepspeed/deepspeed_keys.hpp"

namespace sluice::migrate {

// The row that was added last, and its rarer properties.
class Row {
 public:
  explicit Row(DeepSpeedKey& key) : key_(key) {}
  Row& alias(std::string_view name) { return key_.alias = name, *this; }
  Row& not_null() { return key_.nullable = false, *this; }
  Row& nullable() { return key_.nullable = true, *this; }
  Row& fills_auto() { return key_.fills_auto = true, *this; }
  Row& keeps_auto() { return key_.keeps_auto = true, *this; }
  Row& choices(std::vector<std::string_view> words) {
    return key_.choices = std::move(words), *this;
  }
  Row& any_case() { return key_.any_case = true, *this; }
  Row& carried(std::vector<std::string_view> words) {
    return key_.carried = std::move(words), *this;
  }
  Row& least(double value) { return key_.least = value, *this; }
  Row& most(double value) { return key_.most = value, *this; }
  Row& between(double least, double most) { return this->least(least).most(most); }
  Row& without_limits() { return key_.excludes_limits = true, *this; }
  Row& refuses_bool() { return key_.refuses_bool = true, *this; }
  Row& checked() { return key_.is_checked = true, *this; }
  Row& required() { return key_.is_required = true, *this; }
  Row& before(DeepSpeedVersion until, std::string_view value) {
    return key_.former = FormerDefault{until, value}, *this;
  }
  Row& rule_before(DeepSpeedVersion until, KeyType type, std::optional<double> least = {}) {
    return key_.former_rule = FormerRule{until, type, least}, *this;
  }
  Row& lenient_before(DeepSpeedVersion version) { return key_.lenient_before = version, *this; }
  Row& since(DeepSpeedVersion version) { return key_.since = version, *this; }
  Row& removed(DeepSpeedVersion version) { return key_.removed = version, *this; }

 private:
  DeepSpeedKey& key_;
};

class KeyTable {
 public:
  // Later rows belong to this section; "" is the top level.
  Row section(std::string_view path, Unknown unknown, KeyClass kind, std::string_view note);
  void top_level() { section_.clear(), python_values_ = false, variants_.clear(); }
  // Later rows belong to these variants.
  void variants(std::vector<std::string_view> names) { variants_ = std::move(names); }
  Row key(std::string_view name, KeyType type, std::string_view fallback, KeyClass kind,
          std::string_view note);

  [[nodiscard]] std::vector<DeepSpeedKey> take() { return std::move(keys_); }

 private:
  std::vector<DeepSpeedKey> keys_;
  std::string section_;
  bool python_values_ = false;
  std::vector<std::string_view> variants_;
};

void add_general_keys(KeyTable& table);    // batch sizes, gradients, communication, output
void add_zero_keys(KeyTable& table);       // zero_optimization
void add_precision_keys(KeyTable& table);  // fp16, bf16, torch_autocast, data_types
void add_optimizer_keys(KeyTable& table);  // optimizer, scheduler
void add_storage_keys(KeyTable& table);    // aio, checkpoint, activation_checkpointing, pipeline
void add_parallel_keys(KeyTable& table);   // tensor_parallel, expert_parallel, compile, ...
void add_observe_keys(KeyTable& table);    // monitors, profilers, autotuning
void add_data_keys(KeyTable& table);       // data_efficiency
void add_removed_keys(KeyTable& table);    // keys that 0.19.7 or 0.19.8 removed

}  // namespace sluice::migrate
