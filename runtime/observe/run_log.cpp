#include "runtime/observe/run_log.hpp"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/thread_rank.hpp"
#include "runtime/observe/status_line.hpp"
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

// The level in eight columns, coloured where `terminal` has colours.
class LevelFlag final : public spdlog::custom_flag_formatter {
 public:
  explicit LevelFlag(const TerminalInfo& terminal) : terminal_(terminal) {}
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& line) override {
    const spdlog::string_view_t name = spdlog::level::to_string_view(message.level);
    std::string text(name.data(), name.size());
    const std::string padding(text.size() < 8 ? 8 - text.size() : 1, ' ');
    if (message.level == spdlog::level::warn) text = colored(Color::kWarning, text, terminal_);
    if (message.level == spdlog::level::err) text = colored(Color::kError, text, terminal_);
    text += padding;
    line.append(text.data(), text.data() + text.size());
  }
  [[nodiscard]] std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<LevelFlag>(terminal_);
  }

 private:
  const TerminalInfo terminal_;
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

std::unique_ptr<spdlog::logger> make_logger(spdlog::sink_ptr sink, const RunLogOptions& options,
                                            int fd) {
  auto logger = std::make_unique<spdlog::logger>("run", std::move(sink));
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<RankFlag>('*', options.rank)
      .add_flag<LevelFlag>('L', terminal_info(fd))
      .set_pattern("%H:%M:%S.%e %L%*%v");
  logger->set_formatter(std::move(formatter));
  logger->set_level(spdlog::level::trace);  // base/log drops what is not shown
  logger->flush_on(spdlog::level::trace);
  return logger;
}

}  // namespace

RunLog::RunLog(const RunLogOptions& options) {
  std::shared_ptr<spdlog::logger> out =
      make_logger(std::make_shared<spdlog::sinks::stdout_sink_mt>(), options, STDOUT_FILENO);
  std::shared_ptr<spdlog::logger> err =
      make_logger(std::make_shared<spdlog::sinks::stderr_sink_mt>(), options, STDERR_FILENO);
  auto said = std::make_shared<SaidByRanks>();
  // Behind the launcher's pipes only the launcher can order the two streams (terminal_screen.hpp).
  const bool own_terminal = ::isatty(STDOUT_FILENO) == 1;
  set_log_sink([out, err, said, options, own_terminal](LogLevel level, std::string_view line) {
    // An error is each rank's own.
    if (level != LogLevel::kError && said->by_another(thread_rank_or(options.rank), line)) {
      return;
    }
    const bool severe = level == LogLevel::kWarning || level == LogLevel::kError;
    const auto log = [&] {
      (severe ? err : out)->log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
    };
    if (options.status != nullptr && (own_terminal || !severe)) {
      options.status->above(log);
    } else {
      log();
    }
    if (options.also) options.also(level, line);
  });
}

RunLog::~RunLog() { set_log_sink({}); }

}  // namespace sluice
