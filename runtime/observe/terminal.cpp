#include "runtime/observe/terminal.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>

namespace sluice {
namespace {

std::string_view variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::string_view() : text;
}

int columns_of_environment() {
  const std::string_view text = variable("COLUMNS");
  int columns = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), columns);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && columns > 0 ? columns : 0;
}

int columns_of_terminal(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

bool shows_utf8() {
  std::string locale;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (locale.empty()) locale = variable(name);
  }
  for (char& c : locale) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool wide =
      locale.starts_with("zh") || locale.starts_with("ja") || locale.starts_with("ko");
  const bool utf8 =
      locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  return utf8 && !wide;
}

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

}  // namespace

TerminalInfo terminal_info(int fd) {
  TerminalInfo info;
  const bool own_terminal = ::isatty(fd) == 1;
  const char* told = fd == STDERR_FILENO ? "SLUICE_STDERR_TTY" : "SLUICE_TTY";
  info.interactive = own_terminal || variable(told) == "1";
  const std::string_view kind = variable("TERM");
  info.rewrites = info.interactive && !kind.empty() && kind != "dumb";
  info.colors = info.rewrites && variable("NO_COLOR").empty();
  info.utf8 = info.rewrites && shows_utf8();
  if (own_terminal) info.columns = columns_of_terminal(fd);
  if (info.columns == 0) info.columns = columns_of_environment();
  return info;
}

TerminalWidth::TerminalWidth(int fd)
    : asked_(::isatty(fd) == 1 ? fd : -1), fixed_(terminal_info(fd).columns) {
  if (asked_ >= 0 || variable("SLUICE_TTY") != "1") return;
  controlling_.reset(::open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC));
  if (controlling_ && columns_of_terminal(controlling_.get()) == fixed_) {
    asked_ = controlling_.get();
  }
}

int TerminalWidth::columns() const {
  const int columns = asked_ < 0 ? 0 : columns_of_terminal(asked_);
  return columns > 0 ? columns : fixed_;
}

std::string colored(Color color, std::string_view text, const TerminalInfo& terminal) {
  if (!terminal.colors) return std::string(text);
  constexpr std::array<std::string_view, 3> kBegin = {"\x1b[33m", "\x1b[31m", "\x1b[1m"};
  return std::string(kBegin[static_cast<std::size_t>(color)]).append(text).append("\x1b[0m");
}

std::string without_colors(std::string_view text) {
  std::string plain;
  while (!text.empty()) {
    const std::size_t begin = std::min(text.find("\x1b["), text.size());
    plain += text.substr(0, begin);
    text.remove_prefix(begin);
    if (text.empty()) break;
    const std::size_t end = text.find_first_not_of("0123456789;", 2);
    const bool color = end != std::string_view::npos && text[end] == 'm';
    if (!color) plain += text.substr(0, 2);
    text.remove_prefix(color ? end + 1 : 2);
  }
  return plain;
}

int columns_of(std::string_view text) {
  return static_cast<int>(
      std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); }));
}

std::string_view first_columns(std::string_view text, int columns) {
  std::size_t end = 0;
  for (int taken = 0; end < text.size(); ++end) {
    if (!continues(text[end]) && ++taken > columns) break;
  }
  return text.substr(0, end);
}

}  // namespace sluice
