// A DeepSpeed configuration as DeepSpeed reads it: one finding for each key of the file, the
// effective value of every key, the batch sizes, and every mistake. Value types; thread-safe for
// readers.
//
//     HjsonDocument document = read_hjson(text);
//     DeepSpeedConfig config = parse_deepspeed(document.root, {.world = 8});
//     config.number("gradient_clipping");  // 1.0 where the file has no such key
//
// Paths are those of the table (deepspeed_keys.hpp), without aliases and without deprecated names.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "configs/migrate/deepspeed/deepspeed_keys.hpp"
#include "configs/migrate/deepspeed/deepspeed_version.hpp"
#include "configs/migrate/hjson_reader.hpp"

namespace sluice::migrate {

// What becomes of one key of the file.
struct Finding {
  std::string path;   // as written, with the names of the file
  Place place;        // of the key
  std::string value;  // as JSON
  KeyClass kind = KeyClass::kMapped;
  // The value is the default, so that a class kRefused or kRemoved stops nothing.
  bool is_default = false;
  std::string note;
  const DeepSpeedKey* key = nullptr;  // nullptr: a key that the table lacks
};

// Something that DeepSpeed refuses.
struct Mistake {
  Place place;
  std::string path;  // "" where no key is at fault
  std::string what;  // "cause; remedy"

  // "file:line:column: path: cause; remedy"
  [[nodiscard]] std::string text(std::string_view file) const;
};

// A key with the value "auto" that Hugging Face's Trainer or accelerate fills.
struct AutoValue {
  std::string path;
  Place place;
  bool is_filled = false;  // by ParseOptions::autos
};

// train_batch_size = micro batch x accumulation x ranks.
struct BatchSizes {
  std::int64_t ranks = 0;  // that DeepSpeed's rule counts; 0: the world is not known
  // ranks / tensor-parallel ranks: those that see different samples. DeepSpeed's rule counts the
  // ranks of tensor_parallel.autotp_size as data-parallel ranks.
  std::int64_t data_parallel = 0;
  std::optional<std::int64_t> global;
  std::optional<std::int64_t> micro;
  std::optional<std::int64_t> accumulation;
};

struct ParseOptions {
  DeepSpeedVersion version = kNewestDeepSpeed;              // that the file was written for
  int world = 0;                                            // ranks; 0: not known
  std::map<std::string, std::string, std::less<>> autos{};  // path -> JSON, for "auto"
  // Ranks of one copy of the model where the program makes the mesh: pipeline x tensor ranks. The
  // file does not have them; tensor_parallel.autotp_size is not among them.
  std::int64_t model_ranks = 1;
};

struct EffectiveValue {
  HjsonNode value;
  bool is_written = false;  // by the file
  Place place;              // of the value, if written
};

struct DeepSpeedConfig {
  DeepSpeedVersion version;
  std::vector<Finding> findings;  // in the order of the file
  std::vector<Mistake> mistakes;
  std::vector<AutoValue> autos;
  BatchSizes batch;
  // Every key of the table that this configuration can have: keys of an absent section with the
  // default null (offload_param, ...) and parameters of other optimizers are not in it.
  std::map<std::string, EffectiveValue, std::less<>> values;

  // True if `values` has the path.
  [[nodiscard]] bool has(std::string_view path) const { return values.contains(path); }
  [[nodiscard]] bool is_written(std::string_view path) const;
  // The effective value. Each throws Error if the configuration lacks the path or the type is
  // another one: ask has() for keys of optional sections, is_null() for nullable keys.
  [[nodiscard]] const HjsonNode& value(std::string_view path) const;
  [[nodiscard]] bool is_null(std::string_view path) const;
  [[nodiscard]] bool flag(std::string_view path) const;
  [[nodiscard]] std::int64_t count(std::string_view path) const;
  [[nodiscard]] double number(std::string_view path) const;
  [[nodiscard]] const std::string& text(std::string_view path) const;
  [[nodiscard]] std::vector<double> numbers(std::string_view path) const;

  // One line for each mistake, in the order of the file; at most 100 and a count of the rest.
  [[nodiscard]] std::string error_text(std::string_view file) const;
};

// REQUIRES: `root` is an object. Collects every mistake; throws nothing.
[[nodiscard]] DeepSpeedConfig parse_deepspeed(const HjsonNode& root, const ParseOptions& options);

}  // namespace sluice::migrate
