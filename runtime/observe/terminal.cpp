#include "runtime/observe/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>

namespace sluice {
namespace {

int columns_of_environment() {
  const char* text = std::getenv("COLUMNS");
  if (text == nullptr) return 0;
  const std::string_view view(text);
  int columns = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), columns);
  const bool whole = error == std::errc() && end == view.data() + view.size();
  return whole && columns > 0 ? columns : 0;
}

}  // namespace

TerminalInfo terminal_info(int fd) {
  TerminalInfo info;
  const char* told = std::getenv("SLUICE_TTY");
  const bool own_terminal = ::isatty(fd) == 1;
  info.interactive = own_terminal || (told != nullptr && std::string_view(told) == "1");
  winsize size{};
  if (own_terminal && ::ioctl(fd, TIOCGWINSZ, &size) == 0) info.columns = size.ws_col;
  if (info.columns == 0) info.columns = columns_of_environment();
  return info;
}

}  // namespace sluice
