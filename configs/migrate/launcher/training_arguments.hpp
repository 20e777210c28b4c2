// Hugging Face's TrainingArguments, from a JSON file or a command line: what the Trainer puts in
// place of "auto" in a DeepSpeed configuration, where the two contradict each other, and the
// settings that the DeepSpeed configuration does not have. Value types; thread-safe for readers.
//
//     TrainerValues values = read_training_arguments(text, "args.json");
//     options.autos = trainer_autos(values, presence);
//     map_trainer(values, presence, draft);
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "configs/migrate/hjson_reader.hpp"
#include "configs/migrate/launcher/trainer_keys.hpp"
#include "configs/migrate/migration.hpp"

namespace sluice::migrate {

// One argument as given.
struct TrainerArgument {
  std::string name;                 // present name: "eval_strategy" for "evaluation_strategy"
  std::string written;              // "--learning-rate"; the key of a file
  Place place;                      // in the file, or the number of the word
  HjsonNode value;                  // of the key's type
  const TrainerKey* key = nullptr;  // nullptr: an argument of the script

  // "trainer.learning_rate", or "script.model_name_or_path".
  [[nodiscard]] std::string path() const;
};

struct TrainerValues {
  std::string file;  // for places; "--trainer" of a command line
  std::vector<TrainerArgument> given;
  std::vector<MigrationError> errors;  // "args.json:3:5: learning_rate: cause; remedy"
  std::vector<std::string> notes;      // sentences that belong to no argument

  [[nodiscard]] const TrainerArgument* find(std::string_view name) const;
  // The value, or the Trainer's default. The key must have that type.
  [[nodiscard]] double number(std::string_view name) const;
  [[nodiscard]] std::int64_t count(std::string_view name) const;
  [[nodiscard]] bool flag(std::string_view name) const;
  [[nodiscard]] std::string text(std::string_view name) const;  // "" of null
  [[nodiscard]] std::string json(std::string_view name) const;
  // The path of the key in the migration: "trainer.learning_rate".
  [[nodiscard]] static std::string path(std::string_view name);
};

// `text` is an object of JSON, or a command line such as "--learning_rate 2e-5 --bf16". Words of a
// script's own arguments are taken as such.
[[nodiscard]] TrainerValues read_training_arguments(std::string_view text, std::string_view file);
[[nodiscard]] TrainerValues read_training_arguments(const std::vector<std::string>& words);

// What the Trainer knows beside its arguments.
struct TrainerContext {
  bool has_deepspeed = true;  // a DeepSpeed configuration belongs to the run
  bool has_optimizer = false;
  bool has_scheduler = false;
  int zero_stage = 0;
  int world = 0;            // ranks; 0: not known
  std::int64_t hidden = 0;  // width of the model; 0: not known
  std::int64_t steps = 0;   // optimizer steps where max_steps is not given; 0: not known
};

// The context's flags from DeepSpeed's configuration.
[[nodiscard]] TrainerContext trainer_context(const HjsonNode& deepspeed);

// DeepSpeed path -> JSON for each "auto" that the Trainer can fill.
[[nodiscard]] std::map<std::string, std::string, std::less<>> trainer_autos(
    const TrainerValues& values, const TrainerContext& context);

// Values of DeepSpeed's configuration that are not "auto" and differ from the arguments: the
// Trainer refuses each of them. `deepspeed` is the root of the file `file`.
[[nodiscard]] std::vector<MigrationError> trainer_mismatches(const TrainerValues& values,
                                                             const TrainerContext& context,
                                                             const HjsonNode& deepspeed,
                                                             std::string_view file);

// Adds each argument, and the defaults that matter, and sets the keys of Sluice that the DeepSpeed
// configuration has no word for.
void map_trainer(const TrainerValues& values, const TrainerContext& context, MigrationDraft& draft);

}  // namespace sluice::migrate
