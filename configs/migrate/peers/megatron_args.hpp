// The arguments of one run, parsed as Megatron-LM's argparse parses them: --name value,
// --name=value, lists to the next argument, the last of several occurrences counts. Prefixes of
// names and unknown arguments are errors, as they are there. Value types; thread-safe for readers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "configs/migrate/migration.hpp"
#include "configs/migrate/peers/megatron_arguments.hpp"
#include "configs/migrate/shell_words.hpp"

namespace sluice::migrate {

class MegatronArgs {
 public:
  // Values by the first name of the argument. Every getter answers with the default where the
  // argument is not written. REQUIRES of all: the name is the table's first name.
  [[nodiscard]] bool has(std::string_view name) const;          // is written; a flag is on
  [[nodiscard]] std::string text(std::string_view name) const;  // "" where there is no value
  [[nodiscard]] const std::vector<std::string>& list(std::string_view name) const;
  [[nodiscard]] std::int64_t count(std::string_view name) const;
  [[nodiscard]] double number(std::string_view name) const;
  // The value as JSON.
  [[nodiscard]] std::string json(std::string_view name) const;

  void put(std::string_view name, std::vector<std::string> values);

 private:
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
};

struct MegatronParsing {
  bool has_deepspeed_file = false;  // the file of --deepspeed_config is read beside the arguments
};

// Adds a key for each argument; mistakes become errors of the draft.
[[nodiscard]] MegatronArgs parse_megatron_args(const std::vector<ShellWord>& words,
                                               MigrationDraft& draft, MegatronParsing parsing = {});

}  // namespace sluice::migrate
