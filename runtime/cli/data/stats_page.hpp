// The report of `sluice data stats` as one self-contained HTML page. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// The page's template, built into the program from stats_page.html and .js.
struct StatsFiles {
  std::string_view page;
  std::string_view script;
};
[[nodiscard]] const StatsFiles& stats_files();

// `json` as of stats_page_json(); `text`: for a browser without scripts.
[[nodiscard]] std::string stats_html(const std::string& title, const std::string& json,
                                     const std::string& text);

}  // namespace sluice
