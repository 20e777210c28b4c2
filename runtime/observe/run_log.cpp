#include "runtime/observe/run_log.hpp"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/thread_rank.hpp"
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

// "[rank 3] "; nothing for rank 0.
class RankFlag final : public spdlog::custom_flag_formatter {
 public:
  explicit RankFlag(int process_rank) : process_rank_(process_rank) {}
  void format(const spdlog::details::log_msg&, const std::tm&,
              spdlog::memory_buf_t& line) override {
    const int rank = thread_rank_or(process_rank_);
    if (rank == 0) return;
    const std::string text = "[rank " + std::to_string(rank) + "] ";
    line.append(text.data(), text.data() + text.size());
  }
  [[nodiscard]] std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<RankFlag>(process_rank_);
  }

 private:
  const int process_rank_;
};

// For ranks that are threads of one process: drops a line that another rank has printed.
// Repetitions of one rank stay. Thread-safe.
class SaidByRanks {
 public:
  bool by_another(int rank, std::string_view line) {
    const std::lock_guard lock(mutex_);
    const auto found = first_.find(line);
    if (found != first_.end()) return found->second != rank;
    if (first_.size() < kMostLines) first_.emplace(line, rank);
    return false;
  }

 private:
  static constexpr std::size_t kMostLines = 4096;  // of a start; a step's lines differ anyway
  std::mutex mutex_;
  std::map<std::string, int, std::less<>> first_;  // rank that said it first; guarded by mutex_
};

std::unique_ptr<spdlog::logger> make_logger(spdlog::sink_ptr sink, const RunLogOptions& options) {
  auto logger = std::make_unique<spdlog::logger>("run", std::move(sink));
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<RankFlag>('*', options.rank).set_pattern("%H:%M:%S.%e %-7l %*%v");
  logger->set_formatter(std::move(formatter));
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
  auto said = std::make_shared<SaidByRanks>();
  set_log_sink([out, err, said, options](LogLevel level, std::string_view line) {
    const spdlog::level::level_enum lvl = to_spdlog(level);
    if (!out->should_log(lvl)) return;
    // An error is each rank's own.
    if (level != LogLevel::kError && said->by_another(thread_rank_or(options.rank), line)) {
      return;
    }
    if (options.interactive) {
      // Always to standard output, because the progress line is on it and standard error may be a
      // file.
      std::fwrite(kClearLine.data(), 1, kClearLine.size(), stdout);
      std::fflush(stdout);
    }
    const bool severe = level == LogLevel::kWarning || level == LogLevel::kError;
    (severe ? err : out)->log(lvl, spdlog::string_view_t(line.data(), line.size()));
  });
}

RunLog::~RunLog() { set_log_sink({}); }

}  // namespace sluice
