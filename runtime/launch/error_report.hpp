// How a rank tells the launcher why it failed: one JSON object in the file that SLUICE_ERROR_FILE
// names,
//
//   {"rank": 1, "host": "host7", "time_ns": 1763730000000000000, "exit_code": 4,
//    "secondary": false, "recurs": false, "stopped": false,
//    "message": "cannot read corpus.bin: Input/output error"}
//
// written in one step, and only once: the first report of a rank stays. time_ns counts from the
// Unix epoch; `secondary` says that the cause lies with another rank, `recurs` that the same run
// started again would fail in the same way, `stopped` that the rank has not failed: it ended at a
// step's end, with exit code 130, as it was asked to. Thread-safe.
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

[[nodiscard]] std::string host_name();
[[nodiscard]] std::int64_t unix_time_ns();

// Of the calling thread's rank (base/thread_rank.hpp), on this host, now.
[[nodiscard]] ErrorReport make_error_report(std::string message, int exit_code, bool secondary);
// ... of what was caught: its chain, its exit code, whether it is secondary and whether it recurs.
[[nodiscard]] ErrorReport make_error_report(const std::exception& error);

// The object on one line, and back; nullopt where it cannot be understood. Pure.
[[nodiscard]] std::string error_report_text(const ErrorReport& report);
[[nodiscard]] std::optional<ErrorReport> parse_error_report(std::string_view text);

// Throws IoError. A report that is there already stays.
void write_error_report(const std::string& path, const ErrorReport& report);
// nullopt where there is none or it cannot be understood.
[[nodiscard]] std::optional<ErrorReport> read_error_report(const std::string& path);

// What main does with the exception it caught: prints "rank 1 on host7 failed: ..." to standard
// error, writes the report where SLUICE_ERROR_FILE asks for one, returns the exit code. Never
// throws.
int report_failure(const std::exception& error) noexcept;
int report_failure(const ErrorReport& report) noexcept;

// Before a rank that was stopped ends with exit code 130: writes the report where SLUICE_ERROR_FILE
// asks for one, so that the launcher takes that code for no failure. Never throws.
void report_stop(const std::string& why) noexcept;

}  // namespace sluice
