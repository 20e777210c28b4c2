#include "kernels/base/log.hpp"

#include <cstdio>
#include <mutex>

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

}  // namespace

void set_log_sink(LogSink new_sink) {
  const std::lock_guard lock(sink_mutex());
  sink() = std::move(new_sink);
}

void log_line(LogLevel level, std::string_view line) {
  const std::lock_guard lock(sink_mutex());
  if (sink()) {
    sink()(level, line);
  } else if (level != LogLevel::kDebug) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  }
}

}  // namespace sluice
