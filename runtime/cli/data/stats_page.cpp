#include "runtime/cli/data/stats_page.hpp"

#include "runtime/page/page.hpp"

namespace sluice {

std::string_view stats_page_body();
std::string_view stats_page_script();

std::string stats_html(const std::string& title, const std::string& json, const std::string& text) {
  return make_page({.title = "data of " + title,
                    .command = "sluice data stats",
                    .body = stats_page_body(),
                    .scripts = {stats_page_script()},
                    .json = json,
                    .text = text});
}

}  // namespace sluice
