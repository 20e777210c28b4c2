// A failing rank reports its cause to the launcher: one JSON object in the file SLUICE_ERROR_FILE,
//
//   {"rank": 1, "host": "host7", "time_ns": 1763730000000000000, "exit_code": 4,
//    "secondary": false, "recurs": false, "stopped": false,
//    "message": "cannot read corpus.bin: Input/output error"}
//
// written in one step and only once; the first report of a rank stays. time_ns counts from the Unix
// epoch. `secondary`: the cause lies with another rank. `recurs`: the same run would fail again in
// the same way. `stopped`: the rank did not fail; it ended at a step's end on request, with exit
// code 130. Thread-safe.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

struct ErrorReport {
  int rank = 0;
  std::string host = {};
  std::int64_t time_ns = 0;
  int exit_code = 5;
  bool secondary = false;
  bool recurs = false;
  bool stopped = false;
  std::string message = {};
};

// A report of the calling thread's rank (base/thread_rank.hpp), with this host and the current
// time.
[[nodiscard]] ErrorReport make_error_report(std::string message, int exit_code, bool secondary);
// The same from a caught exception: its chain, exit code, whether it is secondary, whether it
// recurs, and its own time. A rank whose exchange timed out ends its connections before it reports,
// so the report of a rank that lost one of them may be written first, but its error is later.
[[nodiscard]] ErrorReport make_error_report(const std::exception& error);

// The object on one line, and back; nullopt for invalid text. Pure.
[[nodiscard]] std::string error_report_text(const ErrorReport& report);
[[nodiscard]] std::optional<ErrorReport> parse_error_report(std::string_view text);

// Throws IoError. An existing report stays.
void write_error_report(const std::string& path, const ErrorReport& report);
// nullopt if the file is missing or invalid.
[[nodiscard]] std::optional<ErrorReport> read_error_report(const std::string& path);

// The end of main after an exception: writes the report to SLUICE_ERROR_FILE, whose launcher puts
// it into the rank's log and on the terminal. Without that file prints "rank 1 on host7 failed:
// ..." to standard error. Returns the exit code. Never throws.
int report_failure(const std::exception& error) noexcept;
int report_failure(const ErrorReport& report) noexcept;

// Called before a stopped rank ends with exit code 130. Writes the report if SLUICE_ERROR_FILE is
// set, so that the launcher does not count this end as a failure. Never throws.
void report_stop(const std::string& why) noexcept;

}  // namespace sluice
