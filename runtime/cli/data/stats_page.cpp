#include "runtime/cli/data/stats_page.hpp"

#include "runtime/plan/page/html_files.hpp"
#include "runtime/plan/page/html_text.hpp"

namespace sluice {

std::string stats_html(const std::string& title, const std::string& json, const std::string& text) {
  const HtmlFiles& shared = html_files();
  return fill_page(stats_files().page, {{"<!--TITLE-->", escape_html("data of " + title)},
                                        {"<!--REPORT-->", escape_html(text)},
                                        {"<!--DATA-->", escape_json_for_html(json)},
                                        {"/*STYLE*/", std::string(shared.styles)},
                                        {"/*COMMON*/", std::string(shared.common)},
                                        {"/*SCRIPT*/", std::string(stats_files().script)}});
}

}  // namespace sluice
