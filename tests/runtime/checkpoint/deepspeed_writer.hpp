// Checkpoints as DeepSpeed saves them, in small: every rank's shards of ZeRO-1, 2 or 3.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sluice::testing {

struct WrittenParam {
  std::string name;
  std::vector<std::int64_t> shape;
  [[nodiscard]] std::int64_t elems() const;
};

// Element `i` of a state ("fp32", "exp_avg" or "exp_avg_sq") of a parameter.
[[nodiscard]] float written_element(const std::string& param, const std::string& state,
                                    std::int64_t i);

struct WrittenZero {
  int stage = 1;
  int world = 2;
  std::string prefix;      // "bf16_" of the optimizers' files
  bool padded = false;     // ZeRO-1, 2: fp32 with its padding, as BF16_Optimizer writes
  std::int64_t align = 1;  // ZeRO-1, 2: each parameter begins at a multiple (0.19.7 and later)
  bool mappings = true;    // param_slice_mappings
  bool moments = true;
  std::int32_t step = 7;                          // global_steps; one was skipped
  std::int32_t updates = 6;                       // Adam's count
  bool step_in_group = false;                     // the count is in the optimizer's param_groups
  std::int32_t said_world = 0;                    // partition_count, if it differs from world
  std::string config = "}";                       // ds_config: opcodes
  std::string more_states;                        // entries of optimizer_state_dict: opcodes
  std::string more_model;                         // entries of the model's file: opcodes
  std::vector<std::vector<WrittenParam>> groups;  // of the optimizer, or of its parts (ZeRO-3)
  std::vector<WrittenParam> frozen;               // ZeRO-3: cut; else in the module, with a buffer
  std::vector<std::pair<std::string, std::string>> shared;  // name, and the name that holds it
};

// Writes the files of every rank to `dir`, which must exist.
void write_zero(const std::string& dir, const WrittenZero& zero);

// Opcodes.
[[nodiscard]] std::string pickled_entry(const std::string& key, const std::string& value);
[[nodiscard]] std::string pickled_dictionary(const std::string& entries);
[[nodiscard]] std::string pickled_list(const std::vector<std::string>& values);
[[nodiscard]] std::string pickled_float(double value);
[[nodiscard]] std::string pickled_object(const std::string& module, const std::string& type,
                                         const std::string& entries);

}  // namespace sluice::testing
