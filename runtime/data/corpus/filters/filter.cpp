#include "runtime/data/corpus/filters/filter.hpp"

#include "base/error.hpp"
#include "runtime/data/corpus/filters/filter_kinds.hpp"

namespace sluice {
namespace {

const std::vector<FilterMaker>& makers() {
  static const std::vector<FilterMaker> kMakers{
      url_filter(),        repair_filter(),         nfc_filter(),
      spaces_filter(),     language_filter(),       length_filter(),
      javascript_filter(), gopher_quality_filter(), gopher_repetition_filter(),
      c4_filter(),         fineweb_filter(),        duplicate_lines_filter()};
  return kMakers;
}

}  // namespace

void Document::set_text(std::string text) {
  if (text == text_) return;
  text_ = std::move(text);
  changed_ = true;
  words_.reset();
  characters_.reset();
}

const std::vector<Word>& Document::words() {
  if (!words_) words_ = split_words(text_);
  return *words_;
}

std::size_t Document::characters() {
  if (!characters_) characters_ = count_characters(text_);
  return *characters_;
}

FilterSpec parse_filter(std::string_view text) {
  FilterSpec spec;
  const std::size_t colon = std::min(text.find(':'), text.size());
  spec.name = text.substr(0, colon);
  if (spec.name.empty()) throw ConfigError("'" + std::string(text) + "' names no filter");
  text.remove_prefix(std::min(colon + 1, text.size()));
  while (!text.empty()) {
    const std::string_view option = text.substr(0, text.find(','));
    const std::size_t equals = option.find('=');
    if (equals == 0 || equals == std::string_view::npos) {
      throw ConfigError("filter " + spec.name + ": '" + std::string(option) +
                        "' is not of the form option=value");
    }
    spec.options[std::string(option.substr(0, equals))] = option.substr(equals + 1);
    text.remove_prefix(std::min(option.size() + 1, text.size()));
  }
  return spec;
}

const std::vector<FilterKind>& filter_kinds() {
  static const std::vector<FilterKind> kKinds = [] {
    std::vector<FilterKind> kinds;
    for (const FilterMaker& maker : makers()) kinds.push_back(maker.kind);
    return kinds;
  }();
  return kKinds;
}

std::unique_ptr<Filter> make_filter(const FilterSpec& spec) {
  std::string names;
  for (const FilterMaker& maker : makers()) {
    if (maker.kind.name == spec.name) return maker.make(FilterOptions(maker.kind, spec));
    names += (names.empty() ? "" : ", ") + std::string(maker.kind.name);
  }
  throw ConfigError("no filter '" + spec.name + "'; the filters: " + names);
}

std::vector<FilterSpec> filter_recipe(std::string_view name) {
  if (name == "none") return {};
  if (name == "openwebtext") {
    return {{"url", {{"domains", "openwebtext"}, {"extensions", "openwebtext"}}},
            {"repair"},
            {"language", {{"keep", "en"}, {"min_share", "off"}, {"reliable", "off"}}},
            {"length", {{"min_tokens", "128"}}}};
  }
  if (name == "fineweb") {
    return {{"url", {{"min_characters", "off"}}},
            {"language", {{"keep", "en"}, {"min_share", "0.65"}}},
            {"gopher_repetition"},
            {"gopher_quality"},
            {"c4", {{"end_punctuation", "off"}}},
            {"fineweb"}};
  }
  throw ConfigError("no recipe '" + std::string(name) +
                    "'; the recipes: openwebtext, fineweb, none");
}

}  // namespace sluice
