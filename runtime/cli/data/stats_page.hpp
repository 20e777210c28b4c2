// The report of `sluice data stats` as one self-contained HTML page. Pure; thread-safe.
#pragma once

#include <string>

namespace sluice {

// `json` as of stats_page_json(); `text`: for a browser without scripts.
[[nodiscard]] std::string stats_html(const std::string& title, const std::string& json,
                                     const std::string& text);

}  // namespace sluice
