// The filter that repairs text.
#include <memory>

#include "runtime/data/corpus/filters/filter_kinds.hpp"
#include "runtime/data/corpus/repair/repair.hpp"

namespace sluice {
namespace {

class RepairFilter : public Filter {
 public:
  explicit RepairFilter(const RepairOptions& options) : options_(options) {}
  [[nodiscard]] std::optional<Rejection> apply(Document& document) const override {
    document.set_text(repair_text(document.text(), options_));
    return std::nullopt;
  }

 private:
  RepairOptions options_;
};

std::unique_ptr<Filter> make_repair(const FilterOptions& options) {
  return std::make_unique<RepairFilter>(
      RepairOptions{.html = options.flag("html"),
                    .encoding = options.flag("encoding"),
                    .c1_controls = options.flag("c1_controls"),
                    .ligatures = options.flag("ligatures"),
                    .width = options.flag("width"),
                    .quotes = options.flag("quotes"),
                    .line_breaks = options.flag("line_breaks"),
                    .terminal_escapes = options.flag("terminal_escapes"),
                    .controls = options.flag("controls"),
                    .nfc = options.flag("nfc")});
}

}  // namespace

FilterMaker repair_filter() {
  return {{"repair",
           "repairs text by the rules of ftfy",
           {{"html", "on", "character references, in texts without tags"},
            {"encoding", "on", "UTF-8 that was read in another code page"},
            {"c1_controls", "on", "U+0080 to U+009F as Windows-1252"},
            {"ligatures", "on", "Latin ligatures as letters"},
            {"width", "on", "full-width and half-width forms as usual characters"},
            {"quotes", "on", "curly quotes as straight ones"},
            {"line_breaks", "on", "all line ends as \\n"},
            {"terminal_escapes", "on", "removes colours of terminals"},
            {"controls", "on", "removes control characters"},
            {"nfc", "on", "Unicode normal form C"}}},
          make_repair};
}

}  // namespace sluice
