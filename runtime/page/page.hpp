// A self-contained HTML page: one template, styles and script for all pages of the program. Pure;
// thread-safe.
//
// A page fetches nothing, whatever its data say: its policy forbids it. Scripts make only text
// nodes from the data, so a name cannot become markup.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct PageParts {
  std::string title = {};
  std::string_view command = {};  // that makes the page: "sluice plan"
  std::string_view body = {};     // HTML, behind the title and the sentences "about" and "verdict"
  // After common.js. They share one scope, in which `data` is the parsed JSON.
  std::vector<std::string_view> scripts = {};
  std::string json = {};  // the page's data
  std::string text = {};  // for a browser without scripts
  bool follows = false;   // the page may fetch from the server that it came from
};
[[nodiscard]] std::string make_page(const PageParts& parts);

// Scripts that pages share.
//   timeline   operations of a step on lanes, and memory over the same time (timeline.js)
//   curves     values over the steps of runs, with marks (curves.js)
[[nodiscard]] std::string_view timeline_script();
[[nodiscard]] std::string_view curves_script();
// The styles of all pages.
[[nodiscard]] std::string_view page_styles();

}  // namespace sluice
