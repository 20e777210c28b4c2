#include "configs/interpolate.hpp"

#include <cstdlib>

#include "configs/yaml_tree.hpp"

namespace sluice {
namespace {

bool is_name(std::string_view text) {
  if (text.empty() || (text[0] >= '0' && text[0] <= '9')) return false;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    if (!letter && !(c >= '0' && c <= '9')) return false;
  }
  return true;
}

// `body` is the text between ${ and }.
void expand(std::string_view body, Interpolated& out) {
  const std::size_t split = body.find(":-");
  const std::string name(body.substr(0, split));
  const bool has_default = split != std::string_view::npos;
  if (!is_name(name) || (has_default && body.find("${", split) != std::string_view::npos)) {
    out.problems.push_back(in_quotes("${" + std::string(body) + "}") +
                           " is no variable, expected ${NAME} or ${NAME:-default}");
    return;
  }
  out.names.push_back(name);
  const char* value = std::getenv(name.c_str());
  if (has_default && (value == nullptr || *value == '\0')) {
    out.text += body.substr(split + 2);
  } else if (value == nullptr) {
    out.problems.push_back("environment variable " + printable(name) +
                           " is not set, set it or write ${" + printable(name) + ":-default}");
  } else if (!is_clean_text(value, false)) {
    out.problems.push_back("environment variable " + printable(name) +
                           " holds control characters or is not UTF-8, expected plain text");
  } else {
    out.text += value;
  }
}

}  // namespace

Interpolated interpolate(std::string_view text) {
  Interpolated out;
  while (!text.empty()) {
    if (text.starts_with("$${")) {
      out.text += "${";
      text.remove_prefix(3);
    } else if (text.starts_with("${")) {
      const std::size_t end = text.find('}');
      if (end == std::string_view::npos) {
        out.problems.push_back(in_quotes(text) + " lacks its '}', expected ${NAME}");
        return out;
      }
      expand(text.substr(2, end - 2), out);
      text.remove_prefix(end + 1);
    } else {
      out.text += text.front();
      text.remove_prefix(1);
    }
  }
  return out;
}

std::string escape_interpolation(std::string_view value) {
  std::string out;
  for (std::size_t at = 0; at < value.size(); ++at) {
    if (value.substr(at).starts_with("${")) out += '$';
    out += value[at];
  }
  return out;
}

}  // namespace sluice
