#include "runtime/observe/run_log.hpp"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "runtime/observe/terminal.hpp"

namespace sluice {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

std::unique_ptr<spdlog::logger> make_logger(spdlog::sink_ptr sink, const RunLogOptions& options) {
  auto logger = std::make_unique<spdlog::logger>("run", std::move(sink));
  std::string pattern = "%H:%M:%S.%e %-7l ";
  if (options.rank != 0) pattern += "[rank " + std::to_string(options.rank) + "] ";
  logger->set_pattern(pattern + "%v");
  logger->set_level(to_spdlog(options.level));
  logger->flush_on(spdlog::level::trace);
  return logger;
}

}  // namespace

RunLog::RunLog(const RunLogOptions& options) {
  std::shared_ptr<spdlog::logger> out =
      make_logger(std::make_shared<spdlog::sinks::stdout_sink_mt>(), options);
  std::shared_ptr<spdlog::logger> err =
      make_logger(std::make_shared<spdlog::sinks::stderr_sink_mt>(), options);
  set_log_sink(
      [out, err, interactive = options.interactive](LogLevel level, std::string_view line) {
        const spdlog::level::level_enum lvl = to_spdlog(level);
        if (!out->should_log(lvl)) return;
        if (interactive) {
          // Always on standard output: that is where the progress line is, and standard error may
          // well be a file.
          std::fwrite(kClearLine.data(), 1, kClearLine.size(), stdout);
          std::fflush(stdout);
        }
        const bool severe = level == LogLevel::kWarning || level == LogLevel::kError;
        (severe ? err : out)->log(lvl, spdlog::string_view_t(line.data(), line.size()));
      });
}

RunLog::~RunLog() { set_log_sink({}); }

}  // namespace sluice
