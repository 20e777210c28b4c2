// The configuration of a migration as YAML: sections in the schema's order, each value with its
// origin as a comment, no value that is Sluice's default, and marked blanks for what the source
// does not have. Pure functions; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "configs/migrate/migration.hpp"
#include "configs/reader.hpp"

namespace sluice::migrate {

// Sections of the result that a user has to fill: the source names no model, or no data.
struct Blanks {
  bool model = false;
  bool data = false;
};

// REQUIRES: every line keeps to the schema's rules (MigrationDraft::set checks).
[[nodiscard]] std::string write_yaml(const Migration& migration);

// A blank is a section without a line.
[[nodiscard]] Blanks blanks_of(const Migration& migration);

// Lines whose values differ from Sluice's defaults, in the schema's order.
[[nodiscard]] std::vector<ConfigLine> lines_to_write(const Migration& migration);

// Reads the YAML as `sluice train` would and checks rules between keys for the world, apart from
// data and folders of offload.nvme_path, which may be another machine's. Adds an error for each
// broken rule, at the key of the source that gave the value. Applies rules on the sizes of the
// model only if lines of the result give the sizes.
void check_result(Migration& migration);
// The same with all rules, for the result with its model filled in.
void check_with_model(const LoadedConfig& result, Migration& migration);

}  // namespace sluice::migrate
