#include "runtime/data/corpus/dedupe/normal_forms.hpp"

#include "runtime/data/corpus/filters/text_parts.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {

std::string normal_text(std::string_view text) {
  const std::string lower = to_lower(text);
  std::string out;
  out.reserve(lower.size());
  bool space = false;
  for (std::size_t at = 0, length = 0; at < lower.size(); at += length) {
    const std::string_view rest = std::string_view(lower).substr(at);
    if (is_white_space(first_code_point(rest, length))) {
      space = true;
      continue;
    }
    if (space && !out.empty()) out += ' ';
    space = false;
    out.append(rest, 0, length);
  }
  return out;
}

std::string normal_url(std::string_view url) {
  url = trim(url);
  url = url.substr(0, url.find('#'));
  const std::size_t scheme = url.find("://");
  const std::size_t host_end =
      scheme == std::string_view::npos ? 0 : url.find_first_of("/?", scheme + 3);
  const std::string_view host = url.substr(0, host_end);
  return to_lower(host).append(url.substr(host.size()));
}

}  // namespace sluice
