#include "runtime/launch/error_report.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.hpp"
#include "base/posix/atomic_file.hpp"
#include "base/posix/host_name.hpp"
#include "base/thread_rank.hpp"
#include "runtime/launch/stop_signal.hpp"

namespace sluice {
namespace {

// For the launcher. Returns false if none started this rank, or the report could not be written.
bool leave_report(const ErrorReport& report) noexcept {
  const char* path = std::getenv("SLUICE_ERROR_FILE");
  if (path == nullptr || *path == '\0') return false;
  try {
    write_error_report(path, report);
    return true;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "the error report was not written: %s\n", failure.what());
    return false;
  }
}

}  // namespace

ErrorReport make_error_report(std::string message, int exit_code, bool secondary) {
  return {.rank = thread_rank(),
          .host = host_name(),
          .time_ns = unix_time_ns(),
          .exit_code = exit_code,
          .secondary = secondary,
          .message = std::move(message)};
}

ErrorReport make_error_report(const std::exception& error) {
  ErrorReport report =
      make_error_report(error_chain(error), exit_code_of(error), is_secondary(error));
  report.recurs = recurs(error);
  report.time_ns = time_ns_of(error);
  return report;
}

std::string error_report_text(const ErrorReport& report) {
  const nlohmann::ordered_json object{
      {"rank", report.rank},           {"host", report.host},           {"time_ns", report.time_ns},
      {"exit_code", report.exit_code}, {"secondary", report.secondary}, {"recurs", report.recurs},
      {"stopped", report.stopped},     {"message", report.message}};
  // A message may quote a file that is not UTF-8.
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void write_error_report(const std::string& path, const ErrorReport& report) {
  write_file_atomically(path, error_report_text(report) + "\n", IfExists::kKeep);
}

std::optional<ErrorReport> read_error_report(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  return parse_error_report(std::string(std::istreambuf_iterator<char>(in), {}));
}

std::optional<ErrorReport> parse_error_report(std::string_view text) {
  try {
    const auto object = nlohmann::json::parse(text);
    return ErrorReport{.rank = object.at("rank").get<int>(),
                       .host = object.at("host").get<std::string>(),
                       .time_ns = object.at("time_ns").get<std::int64_t>(),
                       .exit_code = object.at("exit_code").get<int>(),
                       .secondary = object.at("secondary").get<bool>(),
                       .recurs = object.at("recurs").get<bool>(),
                       .stopped = object.value("stopped", false),
                       .message = object.at("message").get<std::string>()};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

int report_failure(const std::exception& error) noexcept {
  try {
    return report_failure(make_error_report(error));
  } catch (...) {  // out of memory while composing the message
    return 5;
  }
}

int report_failure(const ErrorReport& report) noexcept {
  if (!leave_report(report)) {
    std::fprintf(stderr, "rank %d on %s failed: %s\n", report.rank, report.host.c_str(),
                 report.message.c_str());
  }
  return report.exit_code;
}

void report_stop(const std::string& why) noexcept {
  try {
    ErrorReport report = make_error_report(why, kInterruptedExitCode, false);
    report.stopped = true;
    (void)leave_report(report);
  } catch (...) {
    return;  // out of memory: the launcher takes the exit code for a failure
  }
}

}  // namespace sluice
