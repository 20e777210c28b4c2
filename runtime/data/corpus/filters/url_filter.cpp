// Rejects documents by their URL: black lists of domains and file extensions, short and malformed
// URLs.
#include <algorithm>
#include <array>
#include <unordered_set>

#include "base/error.hpp"
#include "runtime/data/corpus/filters/filter_kinds.hpp"
#include "runtime/data/corpus/filters/url_lists.hpp"
#include "runtime/data/file_io.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kLargestList = std::int64_t{1} << 30;

using HostNames = std::unordered_set<std::string>;

// Names of a list, separated by white space or '|'; '#' begins a comment to the end of the
// line.
HostNames names_in(std::string_view text) {
  HostNames names;
  std::string name;
  bool comment = false;
  for (const char c : text) {
    comment = c != '\n' && (comment || c == '#');
    const bool separates = comment || c == '|' || is_white_space(static_cast<unsigned char>(c));
    if (!separates) {
      name += c;
      continue;
    }
    if (!name.empty()) names.insert(to_lower(name));
    name.clear();
  }
  if (!name.empty()) names.insert(to_lower(name));
  return names;
}

// The list that an option names: "openwebtext", a file after '@', or the names themselves.
HostNames list_of(const std::optional<std::string>& option, std::string_view openwebtext) {
  if (!option) return {};
  if (*option == "openwebtext") return names_in(openwebtext);
  if (option->starts_with('@')) return names_in(read_whole_file(option->substr(1), kLargestList));
  return names_in(*option);
}

bool is_alphanumeric(char c) {
  const char lower = static_cast<char>(c | 0x20);
  return (c >= '0' && c <= '9') || (lower >= 'a' && lower <= 'z');
}
bool is_number(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

struct Url {
  bool well_formed = false;
  std::string host;  // lower case, without port
  std::string path;  // lower case, without query and fragment
};

bool is_label(std::string_view label) {
  return !label.empty() && label.size() <= 63 && is_alphanumeric(label.front()) &&
         is_alphanumeric(label.back()) && std::all_of(label.begin(), label.end(), [](char c) {
           return is_alphanumeric(c) || c == '-';
         });
}

std::vector<std::string_view> labels_of(std::string_view host) {
  if (host.ends_with('.')) host.remove_suffix(1);
  std::vector<std::string_view> labels;
  for (std::size_t begin = 0; begin <= host.size();) {
    const std::size_t end = std::min(host.find('.', begin), host.size());
    labels.push_back(host.substr(begin, end - begin));
    begin = end + 1;
  }
  return labels;
}

bool is_host(std::string_view host) {
  const std::vector<std::string_view> labels = labels_of(host);
  if (labels.size() < 2 || !std::all_of(labels.begin(), labels.end(), is_label)) return false;
  if (is_number(labels.back())) {
    return labels.size() == 4 && std::all_of(labels.begin(), labels.end(), [](auto label) {
             return is_number(label) && label.size() <= 3;
           });
  }
  return labels.back().size() >= 2;
}

Url parse_url(std::string_view text) {
  Url url;
  const std::string lower = to_lower(text);
  std::string_view rest = lower;
  if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else if (rest.starts_with("https://")) {
    rest.remove_prefix(8);
  } else {
    return url;
  }
  std::string_view host = rest.substr(0, rest.find_first_of("/?#"));
  rest.remove_prefix(host.size());
  const std::size_t colon = host.find(':');
  const bool port_good = colon == std::string_view::npos ||
                         (colon + 1 < host.size() && is_number(host.substr(colon + 1)));
  host = host.substr(0, colon);
  url.host = host;
  url.path = rest.substr(0, rest.find_first_of("?#"));
  const bool spaces = std::any_of(rest.begin(), rest.end(), [](char c) {
    return is_white_space(static_cast<unsigned char>(c)) && static_cast<unsigned char>(c) < 0x80;
  });
  url.well_formed = port_good && !spaces && is_host(host);
  return url;
}

// The label that its owner registered: "bbc" of www.bbc.co.uk. A country's second level is taken
// from the usual names; the public suffix list is not read.
std::string registered_label(std::string_view host) {
  static constexpr std::array<std::string_view, 12> kSecondLevels{
      "co", "com", "org", "net", "edu", "gov", "ac", "or", "ne", "go", "gob", "mil"};
  const std::vector<std::string_view> labels = labels_of(host);
  if (labels.size() < 2) return std::string(host);
  const std::size_t last = labels.size() - 1;
  const bool second_level = labels.size() > 2 && labels[last].size() == 2 &&
                            std::find(kSecondLevels.begin(), kSecondLevels.end(),
                                      labels[last - 1]) != kSecondLevels.end();
  return std::string(labels[last - (second_level ? 2 : 1)]);
}

class UrlFilter : public Filter {
 public:
  explicit UrlFilter(const FilterOptions& options)
      : domains_(list_of(options.text("domains"), openwebtext_domains())),
        extensions_(list_of(options.text("extensions"), openwebtext_extensions())),
        min_characters_(options.number("min_characters")),
        malformed_(options.flag("malformed")),
        missing_(options.flag("missing")) {}

  [[nodiscard]] std::optional<Rejection> apply(Document& document) const override {
    const std::optional<std::string>& given = document.url();
    if (!given) {
      return missing_ ? std::optional(Rejection{"missing", 0}) : std::nullopt;
    }
    const std::string_view text = trim(*given);
    const Url url = parse_url(text);
    if (in_domains(url.host)) return Rejection{"domain", 0};
    if (in_extensions(url.path)) return Rejection{"extension", 0};
    const auto characters = static_cast<double>(count_characters(text));
    if (below(characters, min_characters_)) return Rejection{"min_characters", characters};
    if (malformed_ && !url.well_formed) return Rejection{"malformed", 0};
    return std::nullopt;
  }

 private:
  [[nodiscard]] bool in_domains(std::string_view host) const {
    if (domains_.empty() || host.empty()) return false;
    if (domains_.contains(registered_label(host))) return true;
    for (;;) {
      if (domains_.contains(std::string(host))) return true;
      const std::size_t dot = host.find('.');
      if (dot == std::string_view::npos) return false;
      host.remove_prefix(dot + 1);
      if (host.find('.') == std::string_view::npos) return false;
    }
  }
  [[nodiscard]] bool in_extensions(std::string_view path) const {
    const std::string_view name = path.substr(path.rfind('/') + 1);
    for (std::size_t dot = name.find('.'); dot != std::string_view::npos;
         dot = name.find('.', dot + 1)) {
      if (extensions_.contains(std::string(name.substr(dot + 1)))) return true;
    }
    return false;
  }

  HostNames domains_, extensions_;
  std::optional<double> min_characters_;
  bool malformed_, missing_;
};

}  // namespace

FilterMaker url_filter() {
  return {
      {"url",
       "rejects by URL; texts without a URL pass",
       {{"domains", "off",
         "domains to reject, '|' between, @FILE or openwebtext; a name without a dot stands for "
         "the registered name under any suffix, a name with a dot for the host and all below"},
        {"extensions", "off", "file extensions to reject, likewise"},
        {"min_characters", "9", "least characters of a URL"},
        {"malformed", "on", "rejects what is no http(s) URL with a host"},
        {"missing", "off", "on: rejects texts without a URL"}}},
      [](const FilterOptions& options) -> std::unique_ptr<Filter> {
        return std::make_unique<UrlFilter>(options);
      }};
}

}  // namespace sluice
