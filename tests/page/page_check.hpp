// Reads a page of runtime/page as text.
#pragma once

#include <array>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::testing {

inline std::string name_at(const std::string& page, std::size_t at) {
  std::string name;
  while (at < page.size() && (std::isalnum(static_cast<unsigned char>(page[at])) != 0)) {
    name += page[at++];
  }
  return name;
}

// The mistake in the nesting of a page's elements; empty: none. Each element is closed, void ones
// with "/>"; scripts and styles are skipped to their end, as browsers do.
inline std::string tag_mistake(const std::string& page) {
  std::vector<std::string> open;
  for (std::size_t at = page.find('<'); at != std::string::npos; at = page.find('<', at)) {
    if (page.compare(at, 2, "<!") == 0) {
      const std::string_view end = page.compare(at, 4, "<!--") == 0 ? "-->" : ">";
      at = page.find(end, at);
      if (at == std::string::npos) return "a comment does not end";
      continue;
    }
    const std::size_t end = page.find('>', at);
    if (end == std::string::npos) return "a tag does not end: " + page.substr(at, 40);
    if (page[at + 1] == '/') {
      const std::string name = name_at(page, at + 2);
      if (open.empty() || open.back() != name) return "</" + name + "> closes nothing";
      open.pop_back();
    } else {
      const std::string name = name_at(page, at + 1);
      if (name.empty()) return "a stray <: " + page.substr(at, 40);
      const bool closed = page[end - 1] == '/';
      if (!closed) open.push_back(name);
      if (!closed && (name == "script" || name == "style")) {
        at = page.find("</" + name, end);
        if (at == std::string::npos) return "<" + name + "> does not end";
        continue;
      }
    }
    at = end;
  }
  return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

// The text of the element that holds the data.
inline std::string data_of(const std::string& page) {
  const std::string tag = "<script type=\"application/json\" id=\"data\">";
  const std::size_t begin = page.find(tag);
  if (begin == std::string::npos) return "";
  return page.substr(begin + tag.size(), page.find("</script", begin) - begin - tag.size());
}

}  // namespace sluice::testing
