#include "runtime/launch/process_environment.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

namespace sluice {

Environment own_environment() {
  Environment result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) result[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return result;
}

void describe_terminal(Environment& environment) {
  environment.erase("SLUICE_TTY");
  if (::isatty(STDOUT_FILENO) != 1) return;
  environment["SLUICE_TTY"] = std::string(1, '1');
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    environment["COLUMNS"] = std::to_string(size.ws_col);
  }
}

std::vector<std::string> entries_of(const Environment& environment) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : environment) entries.push_back(name + "=" + value);
  return entries;
}

}  // namespace sluice
