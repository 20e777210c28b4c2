#include "runtime/cli/data/byte_progress.hpp"

#include <unistd.h>

#include <array>
#include <cstdio>

#include "base/bytes.hpp"
#include "base/log_level.hpp"
#include "runtime/observe/terminal.hpp"

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kRewrite{200}, kLogLine{10'000};

void put(const std::string& text) { (void)!::write(STDERR_FILENO, text.data(), text.size()); }

}  // namespace

std::string format_byte_progress(const std::string& stage, std::int64_t done, std::int64_t all,
                                 double bytes_per_s) {
  const std::string text = stage + ": " + format_bytes(done) + " of " + format_bytes(all);
  if (bytes_per_s <= 0) return text;
  std::array<char, 32> rate{};
  std::snprintf(rate.data(), rate.size(), ", %.1f MB/s, eta ", bytes_per_s / 1e6);
  return text + rate.data() + format_duration(static_cast<double>(all - done) / bytes_per_s);
}

ByteProgress::ByteProgress()
    : terminal_(::isatty(STDERR_FILENO) == 1 && terminal_info(STDERR_FILENO).rewrites) {}

ByteProgress::~ByteProgress() {
  if (terminal_ && !stage_.empty()) put(std::string(kClearLine));
}

void ByteProgress::update(const std::string& stage, std::int64_t done, std::int64_t all) {
  if (!log_shows(LogLevel::kInfo)) return;
  const Clock::time_point now = Clock::now();
  if (stage != stage_) {
    stage_ = stage;
    first_ = done;
    started_ = told_ = now;
    return;
  }
  if (now - told_ < (terminal_ ? kRewrite : kLogLine)) return;
  told_ = now;
  const double seconds = std::chrono::duration<double>(now - started_).count();
  const std::string line =
      format_byte_progress(stage, done, all, static_cast<double>(done - first_) / seconds);
  if (terminal_) {
    put(std::string(kClearLine) + line);
  } else {
    log_info(line);
  }
}

}  // namespace sluice
