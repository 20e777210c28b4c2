// Reads the keys of a configuration one by one against the table: findings, values and mistakes of
// single keys. Only for deepspeed_config.cpp. Not thread-safe.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "configs/migrate/deepspeed/deepspeed_config.hpp"

namespace sluice::migrate {

class DeepSpeedWalk {
 public:
  DeepSpeedWalk(DeepSpeedConfig& config, const ParseOptions& options)
      : config_(config), options_(options) {}

  void read(const HjsonNode& root);

 private:
  // A key of the file: its place, its names, its value.
  struct Given {
    const HjsonEntry& entry;
    std::string path;  // as written
    std::string_view section;
    const DeepSpeedKey* key;
  };

  void section(const HjsonNode& node, const std::string& written, const std::string& path,
               Unknown unknown);
  void known(const Given& given);
  void unknown(const Given& given, Unknown rule);
  void unknown_to_version(const Given& given, Unknown rule);
  void removed(const Given& given);
  void subsection(const Given& given);
  void old_zero(const Given& given);
  void leaf(const Given& given);
  void auto_leaf(const Given& given);
  void auto_section(const Given& given);
  void add_defaults();
  void select_optimizer(const HjsonNode& root);
  [[nodiscard]] bool first_of_names(const Given& given);
  [[nodiscard]] std::string_view variant_of(std::string_view section) const;
  [[nodiscard]] bool is_open(std::string_view section) const;
  [[nodiscard]] std::string suggestion(const Given& given);
  Finding& found(const Given& given, KeyClass kind, std::string note);
  void mistake(const Given& given, std::string what);

  DeepSpeedConfig& config_;
  const ParseOptions& options_;
  std::set<std::string, std::less<>> sections_;  // that the file has, by their path in the table
  std::map<std::string, std::string, std::less<>> given_;  // path in the table -> path as written
  int suggestions_ = 0;    // bounded, a search costs some microseconds
  std::string optimizer_;  // variant of optimizer.params; empty: no type
  std::string scheduler_;
};

// Names of DeepSpeed's own types in the table's spelling; `text` itself for other types.
[[nodiscard]] std::string optimizer_variant(std::string_view type);
// True if the table has parameters of the type.
[[nodiscard]] bool has_parameters(std::string_view section, std::string_view variant);

}  // namespace sluice::migrate
