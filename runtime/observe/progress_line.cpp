#include "runtime/observe/progress_line.hpp"

#include <unistd.h>

#include <utility>

#include "base/log_level.hpp"
#include "runtime/observe/terminal.hpp"

namespace sluice {
namespace {

// A line that does not arrive costs nothing.
void put(int fd, const std::string& text) { (void)!::write(fd, text.data(), text.size()); }

}  // namespace

ProgressLine::ProgressLine(int fd, std::string work, std::chrono::milliseconds after)
    : fd_(fd), work_(std::move(work)) {
  const bool shown = ::isatty(fd) == 1 && terminal_info(fd).rewrites && log_shows(LogLevel::kInfo);
  if (shown) thread_ = std::thread([this, after] { run(after); });
}

ProgressLine::~ProgressLine() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void ProgressLine::run(std::chrono::milliseconds after) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  std::unique_lock lock(mutex_);
  const auto ended_by = [&](Clock::time_point until) {
    return ended_.wait_until(lock, until, [this] { return end_; });
  };
  if (ended_by(start + after)) return;
  do {
    const auto passed = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - start);
    put(fd_, std::string(kClearLine) + work_ + ", " + std::to_string(passed.count()) + " s");
  } while (!ended_by(Clock::now() + std::chrono::seconds(1)));
  put(fd_, std::string(kClearLine));
}

}  // namespace sluice
