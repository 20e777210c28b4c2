// From a YAML file and --set arguments to a RunConfig with the origin of every value.
//
// Precedence, weakest first: defaults (the option structs), the chain of `base:` files from the far
// end, the file itself, --set from left to right. A list is replaced as a whole. Paths in values
// are relative to the working directory; `base:` is relative to the file that names it. ${NAME} and
// ${NAME:-default} in values come from the environment.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "configs/run_config.hpp"

namespace sluice {

// The place where a value was given.
struct Origin {
  bool is_set = false;                 // by --set, otherwise in a file
  std::string text;                    // the file's path, or the argument "zero.stage=3"
  int line = 0;                        // from 1; of a file
  int column = 0;                      // from 1; of a file
  std::vector<std::string> variables;  // environment variables that went into it

  // "configs/x.yaml:12:5", "--set zero.stage=3"
  [[nodiscard]] std::string place() const;
};

// A value type; must not change while another thread reads it.
struct LoadedConfig {
  RunConfig run;
  std::string path;                                    // as it was given to load_config
  std::map<std::string, Origin, std::less<>> origins;  // by "zero.stage"; defaults are not in it
  std::vector<std::string> notes;  // a line per key without effect (idle_keys.hpp)

  // True if a file or --set gave this key.
  [[nodiscard]] bool given(std::string_view key) const;

  // True if --set or another file decides one of two keys.
  [[nodiscard]] bool overridden(std::string_view key, std::string_view other) const;

  // The place of a key: that of its origin, or "configs/x.yaml (default)".
  [[nodiscard]] std::string place(std::string_view key) const;

  // Every key with its value and, as a comment, its origin. Loads again to the same RunConfig from
  // any file with the same working directory.
  [[nodiscard]] std::string resolved_yaml() const;
  // Every key with its value as YAML: "train.steps", "2400".
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> resolved_values() const;
};

// `overrides` are "section.key=value" with the value read as YAML. An empty output.dir becomes
// runs/<the file's name>, an empty data.cache_dir .cache/tokens beside the file. Reads files and
// the environment, writes nothing. Throws one ConfigError with a line per mistake of all files and
// overrides:
//   file:line:column: zero.stgae: unknown key; did you mean 'stage'?
//   --set zero.stage=7: zero.stage: '7' is out of range, expected a whole number from 0 to 3
// Rules between keys are validate()'s (configs/validate.hpp).
[[nodiscard]] LoadedConfig load_config(const std::string& path,
                                       const std::vector<std::string>& overrides);
// The same for a configuration that is no file of its own, e.g. that of a checkpoint. `name` stands
// for the file in messages and in paths that follow from the file's name.
[[nodiscard]] LoadedConfig load_config_text(const std::string& name, const std::string& text,
                                            const std::vector<std::string>& overrides);

// Whether every line of a file has the form that resolved_yaml() writes: a section's name, or a key
// with a comment on its origin. An empty text has it.
[[nodiscard]] bool is_resolved_yaml(std::string_view text);

}  // namespace sluice
