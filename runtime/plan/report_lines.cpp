#include "runtime/plan/report_lines.hpp"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>

namespace sluice {

std::string line(const char* format, ...) {
  std::array<char, 256> text{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  return text.data();
}

std::string wrap(const std::string& words, std::size_t indent) {
  std::string text(indent, ' ');
  std::size_t used = 0;
  std::size_t at = 0;
  while (at < words.size()) {
    const std::size_t end = std::min(words.find(' ', at), words.size());
    const std::string word = words.substr(at, end - at);
    if (used > 0 && used + 1 + word.size() > kReportWidth) {
      text += "\n" + std::string(indent + 2, ' ');
      used = indent + 2;
    } else if (used > 0) {
      text += ' ';
      ++used;
    }
    text += word;
    used += word.size() + (used == 0 ? indent : 0);
    at = end + 1;
  }
  return text + "\n";
}

std::string wrap_list(const std::vector<std::string>& things, std::size_t indent) {
  constexpr char kJoint = '\x1f';
  std::string words;
  for (std::string thing : things) {
    std::ranges::replace(thing, ' ', kJoint);
    words += (words.empty() ? "" : ", ") + thing;
  }
  std::string text = wrap(words, indent);
  std::ranges::replace(text, kJoint, ' ');
  return text;
}

}  // namespace sluice
