// The line of a long work: on a terminal alone, and gone at its end.
#include "runtime/observe/progress_line.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>

namespace sluice::testing {
namespace {

// Reads until the text ends so.
std::string read_until(int fd, const std::string& end) {
  std::string text;
  std::array<char, 64> bytes{};
  while (!text.ends_with(end)) {
    const ssize_t n = ::read(fd, bytes.data(), bytes.size());
    if (n <= 0) break;
    text.append(bytes.data(), static_cast<std::size_t>(n));
  }
  return text;
}

TEST(ProgressLine, IsWrittenToATerminalAndClearedAtTheEnd) {
  const int controller = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (controller < 0) GTEST_SKIP() << "no pseudo-terminals here";
  ASSERT_EQ(::grantpt(controller), 0);
  ASSERT_EQ(::unlockpt(controller), 0);
  const int terminal = ::open(::ptsname(controller), O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  ::setenv("TERM", "xterm", 1);
  std::string text;
  {
    const ProgressLine line(terminal, "planning", std::chrono::milliseconds(0));
    text = read_until(controller, " s");
  }
  EXPECT_TRUE(text.starts_with("\r\x1b[Kplanning, ")) << text;
  EXPECT_TRUE(read_until(controller, "\r\x1b[K").ends_with("\r\x1b[K"));
  ::close(terminal);
  ::close(controller);
}

TEST(ProgressLine, IsNotWrittenToAPipe) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  { const ProgressLine line(ends[1], "planning", std::chrono::milliseconds(0)); }
  ::close(ends[1]);
  EXPECT_EQ(read_until(ends[0], "never"), "");
  ::close(ends[0]);
}

}  // namespace
}  // namespace sluice::testing
