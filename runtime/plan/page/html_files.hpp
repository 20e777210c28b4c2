// The page's template, built into the program from html_page.html, .css and .js. Styles and common
// serve other pages too.
#pragma once

#include <string_view>

namespace sluice {

struct HtmlFiles {
  std::string_view page;
  std::string_view styles;
  std::string_view common;
  std::string_view script;
};

[[nodiscard]] const HtmlFiles& html_files();

}  // namespace sluice
