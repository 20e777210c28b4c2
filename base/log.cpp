#include "base/log.hpp"

#include <atomic>
#include <cstdio>
#include <mutex>

#include "base/log_level.hpp"
#include "base/plain_lines.hpp"

namespace sluice {
namespace {

std::mutex& sink_mutex() {
  static std::mutex mutex;
  return mutex;
}

LogSink& sink() {
  static LogSink current;
  return current;
}

// Guarded by the sink's mutex.
std::vector<std::string>& kept_lines() {
  static std::vector<std::string> lines;
  return lines;
}
constexpr std::size_t kMostLines = 500;

std::atomic<LogLevel> least_level{LogLevel::kInfo};

}  // namespace

void set_log_level(LogLevel least) { least_level = least; }

bool log_shows(LogLevel level) { return level >= least_level; }

std::vector<std::string> plain_lines() {
  const std::lock_guard lock(sink_mutex());
  return kept_lines();
}

void set_log_sink(LogSink new_sink) {
  const std::lock_guard lock(sink_mutex());
  sink() = std::move(new_sink);
}

void log_line(LogLevel level, std::string_view line) {
  if (!log_shows(level)) return;
  const std::lock_guard lock(sink_mutex());
  if (sink()) {
    sink()(level, line);
  } else {
    if (kept_lines().size() < kMostLines) kept_lines().emplace_back(line);
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  }
}

}  // namespace sluice
