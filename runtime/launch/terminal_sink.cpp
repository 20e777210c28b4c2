#include "runtime/launch/terminal_sink.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "base/format.hpp"

namespace sluice {
namespace {

constexpr std::string_view kLost = "\n[output was lost here: the terminal did not take it]\n";

// O_NONBLOCK on the descriptor itself would affect every process that shares the terminal, so the
// terminal is opened again. Only if that gives the same stream: a regular file would be written
// from its start.
Descriptor reopened(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return {};
  if (!S_ISFIFO(status.st_mode) && ::isatty(fd) != 1) return {};
  const std::string path = format_text("/proc/self/fd/{}", fd);
  return open_descriptor(path, O_WRONLY | O_NONBLOCK | O_NOCTTY);
}

}  // namespace

TerminalSink::TerminalSink(int fd) : fd_(fd), own_(reopened(fd)) {}

void TerminalSink::write(std::string_view bytes) {
  if (broken_) return;
  buffer_ += bytes;
  flush();
  if (buffer_.size() <= kBufferBytes) return;
  // Half goes at once, so that the note does not come with every line.
  const std::size_t keep_from = buffer_.find('\n', buffer_.size() - kBufferBytes / 2);
  buffer_.erase(0, std::min(keep_from, buffer_.size()));
  buffer_.insert(0, kLost);
  lost_ = true;
}

void TerminalSink::flush() {
  // A chunk of at most PIPE_BUF after POLLOUT does not block, even on a blocking descriptor.
  constexpr std::size_t kChunk = 4096;
  while (!buffer_.empty()) {
    pollfd ready{.fd = fd(), .events = POLLOUT, .revents = 0};
    if (::poll(&ready, 1, 0) <= 0) return;
    const ssize_t written = ::write(fd(), buffer_.data(), std::min(buffer_.size(), kChunk));
    if (written > 0) {
      buffer_.erase(0, static_cast<std::size_t>(written));
    } else if (written < 0 && errno == EINTR) {
      continue;
    } else if (written < 0 && errno == EAGAIN) {
      return;
    } else {
      broken_ = true;
      lost_ = true;
      reader_gone_ = errno == EPIPE;
      buffer_.clear();
    }
  }
}

void TerminalSink::flush_within(int limit_ms) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(limit_ms);
  flush();
  while (!buffer_.empty()) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd ready{.fd = fd(), .events = POLLOUT, .revents = 0};
    if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) == 0) return;
    flush();
  }
}

}  // namespace sluice
