#include "runtime/launch/process_environment.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

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
  environment.erase("SLUICE_STDERR_TTY");
  const bool out = ::isatty(STDOUT_FILENO) == 1, err = ::isatty(STDERR_FILENO) == 1;
  if (out) environment["SLUICE_TTY"] = std::string(1, '1');
  if (err) environment["SLUICE_STDERR_TTY"] = std::string(1, '1');
  if (!out && !err) return;
  for (const char* name : {"TERM", "NO_COLOR", "LC_ALL", "LC_CTYPE", "LANG"}) {
    if (const char* value = std::getenv(name); value != nullptr) environment[name] = value;
  }
  if (!out) return;
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
