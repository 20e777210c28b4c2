// The table of every key of DeepSpeed's configuration: name, type, default by version, and what the
// key becomes in Sluice. The rows were written from DeepSpeed 0.19.8's source, the versions from
// its history. Read only after the first call; thread-safe.
//
// A path joins names with dots: "zero_optimization.offload_param.device". Rows of optimizer.params
// and scheduler.params belong to variants: the types that take the parameter.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "configs/migrate/deepspeed/deepspeed_version.hpp"
#include "configs/migrate/key_class.hpp"

namespace sluice::migrate {

enum class KeyType {
  kSection,  // an object with its own rows
  kBool,
  kInt,  // a whole number; 5e8 and 2.0 are whole
  kFloat,
  kText,
  kChoice,     // one of `choices`
  kDtype,      // a torch dtype by one of its names
  kList,       // of anything
  kTexts,      // a list of text
  kIntOrAuto,  // a whole number or "auto"
  kObject,     // an object whose keys DeepSpeed does not read one by one
  kAny,
};

// What DeepSpeed does with a key of a section that it does not know.
enum class Unknown {
  kRaises,   // strict: an error
  kIgnores,  // lenient: nothing, without a word
  kTakes,    // open: passes the key on
};

struct FormerDefault {
  DeepSpeedVersion until;  // the first version with the newer default
  std::string_view value;
};

// What older versions take.
struct FormerRule {
  DeepSpeedVersion until;  // the first version with the newer rule
  KeyType type = KeyType::kAny;
  std::optional<double> least{};
};

struct DeepSpeedKey {
  std::string path;
  std::string alias{};  // second name of the last part of the path
  KeyType type = KeyType::kAny;
  std::string_view fallback;  // the default of the newest version as JSON
  KeyClass kind = KeyClass::kMapped;
  std::string_view note;  // what the key becomes in Sluice, or why nothing

  Unknown unknown = Unknown::kRaises;                // kSection
  std::optional<DeepSpeedVersion> lenient_before{};  // kSection: kIgnores in older versions
  bool nullable = false;                             // null is a value
  bool python_values = false;               // read by pydantic, which converts "true", 1 and "5"
  bool fills_auto = false;                  // Hugging Face's Trainer fills "auto"
  bool keeps_auto = false;                  // "auto" is a value
  std::vector<std::string_view> choices{};  // kChoice
  bool any_case = false;                    // of choices
  std::vector<std::string_view> carried{};  // choices that Sluice has; empty: all
  std::optional<double> least{};
  std::optional<double> most{};
  bool excludes_limits = false;
  bool refuses_bool = false;  // where pydantic would read true as 1
  bool is_required = false;
  bool is_checked = false;                   // DeepSpeed itself fails for a value of another type
  std::vector<std::string_view> variants{};  // empty: all
  std::optional<FormerDefault> former{};
  std::optional<FormerRule> former_rule{};
  std::optional<DeepSpeedVersion> since{};    // the first version with the key
  std::optional<DeepSpeedVersion> removed{};  // the first version without the key

  [[nodiscard]] bool is_of(std::string_view variant) const;
  // What a version does with an unknown key. REQUIRES: a section.
  [[nodiscard]] Unknown unknown_of(const DeepSpeedVersion& version) const;
  // The row with the rule of the versions before `former_rule->until`. REQUIRES: former_rule.
  [[nodiscard]] DeepSpeedKey with_former_rule() const;
  // The default of a version as JSON.
  [[nodiscard]] std::string_view fallback_of(const DeepSpeedVersion& version) const;
};

// All rows; a section stands before its keys.
[[nodiscard]] const std::vector<DeepSpeedKey>& deepspeed_keys();

// The row of a path or of a path with an alias as its last part; nullptr if there is none.
// `variant` selects among rows of optimizer.params and scheduler.params; empty: the first.
[[nodiscard]] const DeepSpeedKey* find_deepspeed_key(std::string_view path,
                                                     std::string_view variant = {});

// Names and aliases of the keys directly in a section ("" is the top level) that `version` knows.
[[nodiscard]] std::vector<std::string_view> names_in_section(std::string_view section,
                                                             std::string_view variant,
                                                             const DeepSpeedVersion& version);

// Of a path: everything before the last dot ("" without one), and what is behind it.
[[nodiscard]] std::string_view section_of(std::string_view path);
[[nodiscard]] std::string_view name_of(std::string_view path);

}  // namespace sluice::migrate
