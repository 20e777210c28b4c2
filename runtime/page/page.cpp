#include "runtime/page/page.hpp"

#include "runtime/page/page_text.hpp"

namespace sluice {

std::string_view page_template();
std::string_view page_script();

std::string make_page(const PageParts& parts) {
  std::string scripts(page_script());
  for (const std::string_view script : parts.scripts) scripts += script;
  return fill_page(page_template(),
                   {{"<!--TITLE-->", escape_html(parts.title)},
                    {"<!--COMMAND-->", std::string(parts.command)},
                    {"<!--CONNECT-->", parts.follows ? " connect-src 'self';" : ""},
                    {"<!--TEXT-->", escape_html(parts.text)},
                    {"<!--BODY-->", std::string(parts.body)},
                    {"<!--DATA-->", escape_json_for_html(parts.json)},
                    {"/*STYLE*/", std::string(page_styles())},
                    {"/*SCRIPT*/", scripts}});
}

}  // namespace sluice
