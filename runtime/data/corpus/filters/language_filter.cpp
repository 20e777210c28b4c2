// Keeps documents of some languages. CLD2 detects the language of a text.
#include <cld2/public/encodings.h>

#include <algorithm>
#include <array>
#include <cstdio>  // compact_lang_det.h uses FILE
// clang-format off
#include <cld2/public/compact_lang_det.h>
// clang-format on

#include "base/error.hpp"
#include "runtime/data/corpus/filters/filter_kinds.hpp"

namespace sluice {
namespace {

class LanguageFilter : public Filter {
 public:
  explicit LanguageFilter(const FilterOptions& options)
      : keep_(options.list("keep")),
        min_share_(options.number("min_share")),
        below_characters_(options.number("below_characters")),
        reliable_(options.flag("reliable")) {
    for (const std::string& code : keep_) {
      if (CLD2::GetLanguageFromName(code.c_str()) == CLD2::UNKNOWN_LANGUAGE) {
        options.refuse("keep", "a list of codes of languages that CLD2 knows, such as en|de|zh");
      }
    }
  }

  [[nodiscard]] std::optional<Rejection> apply(Document& document) const override {
    if (below_characters_ && static_cast<double>(document.characters()) >= *below_characters_) {
      return std::nullopt;
    }
    std::array<CLD2::Language, 3> languages{};
    std::array<int, 3> percents{};
    std::array<double, 3> scores{};
    int text_bytes = 0;
    bool reliable = false;
    // CLD2 counts bytes in int; a record has at most 256 MiB.
    const std::string& text = document.text();
    const CLD2::CLDHints no_hints{nullptr, nullptr, CLD2::UNKNOWN_ENCODING, CLD2::UNKNOWN_LANGUAGE};
    (void)CLD2::ExtDetectLanguageSummary(text.data(), static_cast<int>(text.size()), true,
                                         &no_hints, 0, languages.data(), percents.data(),
                                         scores.data(), nullptr, &text_bytes, &reliable);
    const double share = percents[0] / 100.0;
    const std::string_view code = CLD2::LanguageCode(languages[0]);
    if (std::find(keep_.begin(), keep_.end(), code) == keep_.end())
      return Rejection{"other", share};
    if (below(share, min_share_)) return Rejection{"min_share", share};
    if (reliable_ && !reliable) return Rejection{"unreliable", share};
    return std::nullopt;
  }

 private:
  std::vector<std::string> keep_;
  std::optional<double> min_share_, below_characters_;
  bool reliable_;
};

}  // namespace

FilterMaker language_filter() {
  return {{"language",
           "keeps texts whose first language is one of a list, by CLD2",
           {{"keep", "en", "codes of languages, '|' between"},
            {"min_share", "0.65", "least share of the text in that language"},
            {"reliable", "on", "rejects texts that CLD2 is not sure of"},
            {"below_characters", "off", "longer texts pass"}}},
          [](const FilterOptions& options) -> std::unique_ptr<Filter> {
            return std::make_unique<LanguageFilter>(options);
          }};
}

}  // namespace sluice
