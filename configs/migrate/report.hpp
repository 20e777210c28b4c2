// The report of a migration: a table by class for people, one JSON object for programs. Pure
// functions; thread-safe.
#pragma once

#include <string>

#include "configs/migrate/migration.hpp"

namespace sluice::migrate {

// Keys by class with their values, settings and notes, then defaults that matter, then the rest of
// the result. With `colours`: ANSI sequences for a terminal.
[[nodiscard]] std::string report_text(const Migration& migration, bool colours);

// Errors and missing values, a line each, at most 100 and a count of the rest; "" if there is none.
[[nodiscard]] std::string error_text(const Migration& migration);

// {source, file, keys: [{path, value, class, to: {key: value}, note, file, line, column, written,
// stops, allowed}], effective: {path: value}, errors: [text], missing: [{path, give}], commands,
// notes, memory: [{of, problem, device, host, nvme}], config: text}. `config` is null where the
// migration is stopped.
[[nodiscard]] std::string report_json(const Migration& migration);

}  // namespace sluice::migrate
