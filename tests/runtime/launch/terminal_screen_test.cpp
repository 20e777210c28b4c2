#include "runtime/launch/terminal_screen.hpp"

#include <fcntl.h>

#include "tests/runtime/launch/launched_job.hpp"

namespace sluice {
namespace {

// Both streams in one file, as on a terminal.
std::string shown(bool joined, const std::function<void(TerminalScreen&)>& use) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "screen";
  const Descriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600));
  TerminalScreen screen(fd.get(), fd.get(), joined);
  use(screen);
  return text_of(path);
}

TEST(TerminalScreen, ErrorsGoAboveTheOpenLine) {
  EXPECT_EQ(shown(true,
                  [](TerminalScreen& screen) {
                    screen.write_out("a line\n\r\x1b[K42 %");
                    screen.write_err("warning\n");
                    screen.write_out("\r\x1b[K43 %");
                    screen.write_err("error\n");
                  }),
            "a line\n\r\x1b[K42 %\r\x1b[Kwarning\n42 %\r\x1b[K43 %\r\x1b[Kerror\n43 %");
}

TEST(TerminalScreen, NoOpenLineNothingAdded) {
  const auto use = [](TerminalScreen& screen) {
    screen.write_out("42 %\r\x1b[K");
    screen.write_out("a line\n");
    screen.write_err("warning\n");
    screen.close_line();
  };
  EXPECT_EQ(shown(true, use), "42 %\r\x1b[Ka line\nwarning\n");
}

TEST(TerminalScreen, SeparateStreamsPassAsTheyAre) {
  const auto use = [](TerminalScreen& screen) {
    screen.write_out("42 %");
    screen.write_err("warning\n");
    screen.close_line();
  };
  EXPECT_EQ(shown(false, use), "42 %warning\n");
}

TEST(TerminalScreen, LineOfARankThatEndedIsRemoved) {
  const auto use = [](TerminalScreen& screen) {
    screen.write_out("42 ");
    screen.write_out("%");
    screen.close_line();
    screen.write_err("rank 0 was killed\n");
  };
  EXPECT_EQ(shown(true, use), "42 %\r\x1b[Krank 0 was killed\n");
}

}  // namespace
}  // namespace sluice
