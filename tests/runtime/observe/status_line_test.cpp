#include "runtime/observe/status_line.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string>

namespace sluice {
namespace {

// A terminal of this width, which the test reads and resizes.
class Screen {
 public:
  explicit Screen(unsigned short columns) {
    winsize size = of(columns);
    if (::openpty(&controller_, &terminal_, nullptr, nullptr, &size) != 0) return;
    ::fcntl(controller_, F_SETFL, O_NONBLOCK);
    file_ = ::fdopen(terminal_, "w");
  }
  ~Screen() {
    if (file_ != nullptr) std::fclose(file_);
    ::close(controller_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  [[nodiscard]] std::FILE* file() const { return file_; }
  void resize(unsigned short columns) const {
    const winsize size = of(columns);
    EXPECT_EQ(::ioctl(controller_, TIOCSWINSZ, &size), 0);
  }
  // What was written since the last call; the line discipline ends lines with "\r\n". The kernel
  // passes it on in its own time, so a mark behind it says where it ends.
  [[nodiscard]] std::string take() const {
    constexpr char kEnd = '\a';
    EXPECT_EQ(::write(terminal_, &kEnd, 1), 1);
    std::string text;
    for (pollfd ready{controller_, POLLIN, 0}; ::poll(&ready, 1, 10'000) > 0;) {
      char next = 0;
      if (::read(controller_, &next, 1) != 1) continue;
      if (next == kEnd) return text;
      text += next;
    }
    ADD_FAILURE() << "the terminal does not pass on what was written";
    return text;
  }

 private:
  static winsize of(unsigned short columns) {
    return {.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  }
  int controller_ = -1, terminal_ = -1;
  std::FILE* file_ = nullptr;
};

const std::string clear(kClearLine);
const std::string up(kLineUp);

TEST(StatusLine, IsCutToTheTerminal) {
  const Screen screen(10);
  if (screen.file() == nullptr) GTEST_SKIP() << "no pseudo-terminals here";
  StatusLine line(screen.file(), true);
  line.show("0123456789abc");
  EXPECT_EQ(screen.take(), "012345678");
  line.show("\u2588\u2588");
  EXPECT_EQ(screen.take(), clear + "\u2588\u2588");
  line.remove();
  EXPECT_EQ(screen.take(), clear);
  line.remove();
  EXPECT_EQ(screen.take(), "");
}

TEST(StatusLine, StaysBelowOtherLines) {
  const Screen screen(40);
  if (screen.file() == nullptr) GTEST_SKIP() << "no pseudo-terminals here";
  StatusLine line(screen.file(), true);
  const auto print = [&] { std::fputs("a log line\n", screen.file()); };
  line.above(print);
  std::fflush(screen.file());
  EXPECT_EQ(screen.take(), "a log line\r\n");
  line.show("50 %");
  (void)screen.take();
  line.above(print);
  EXPECT_EQ(screen.take(), clear + "a log line\r\n50 %");
}

TEST(StatusLine, FollowsTheWidth) {
  const Screen screen(40);
  if (screen.file() == nullptr) GTEST_SKIP() << "no pseudo-terminals here";
  StatusLine line(screen.file(), true);
  EXPECT_EQ(line.columns(), 40);
  line.show(std::string(35, 'x'));
  (void)screen.take();
  screen.resize(12);  // the terminal wraps the 35 columns to three rows
  EXPECT_EQ(line.columns(), 12);
  line.show("new");
  EXPECT_EQ(screen.take(), clear + up + clear + up + clear + "new");
  screen.resize(60);
  line.show(std::string(50, 'y'));
  EXPECT_EQ(screen.take(), clear + std::string(50, 'y'));
}

TEST(StatusLine, IsNotShownElsewhere) {
  const Screen screen(40);
  if (screen.file() == nullptr) GTEST_SKIP() << "no pseudo-terminals here";
  StatusLine line(screen.file(), false);
  line.show("50 %");
  line.remove();
  EXPECT_EQ(screen.take(), "");
}

}  // namespace
}  // namespace sluice
