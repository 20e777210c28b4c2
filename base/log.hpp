// The log, as the lower folders see it: a level and a line. runtime/observe installs the sink
// (file, terminal); before that, lines go to stderr. Thread-safe.
#pragma once

#include <functional>
#include <string_view>

namespace sluice {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

using LogSink = std::function<void(LogLevel, std::string_view)>;

// Replaces the sink; an empty function restores stderr. When set_log_sink() returns, the old sink
// is not running. A sink must not log or replace the sink: it runs under the log's lock.
void set_log_sink(LogSink sink);
void log_line(LogLevel level, std::string_view line);

inline void log_debug(std::string_view line) { log_line(LogLevel::kDebug, line); }
inline void log_info(std::string_view line) { log_line(LogLevel::kInfo, line); }
inline void log_warning(std::string_view line) { log_line(LogLevel::kWarning, line); }
inline void log_error(std::string_view line) { log_line(LogLevel::kError, line); }

}  // namespace sluice
