#include <algorithm>
#include <array>

#include "runtime/data/tokenizer/sentencepiece_file.hpp"
#include "runtime/data/tokenizer/utf8.hpp"
#include "runtime/data/tokenizer/word_rule.hpp"

namespace sluice {
namespace {

class SentencePieceStep : public NormalizerStep {
 public:
  SentencePieceStep(const SentencePieceRules& rules, std::unique_ptr<Charsmap> charsmap,
                    std::vector<std::string> kept)
      : rules_(rules), charsmap_(std::move(charsmap)), kept_(std::move(kept)) {
    std::sort(kept_.begin(), kept_.end(), [](const std::string& a, const std::string& b) {
      return a.size() != b.size() ? a.size() > b.size() : a < b;
    });
    for (const std::string& piece : kept_) {
      if (!piece.empty()) begins_[static_cast<std::uint8_t>(piece[0])] = true;
    }
  }

  [[nodiscard]] std::string apply(std::string text, bool continued, SplitBudget&) const override {
    std::string_view rest = text;
    bool after_space = rules_.remove_extra_spaces && !continued;
    while (after_space && !rest.empty()) {
      const Charsmap::Match next = prefix_of(rest);
      if (next.to != " ") break;
      rest.remove_prefix(next.bytes);
    }
    if (rest.empty()) return {};
    std::string out;
    out.reserve(text.size() + text.size() / 2);
    if (rules_.dummy_prefix && !rules_.space_as_suffix && !continued) append(" ", out);
    while (!rest.empty()) {
      const Charsmap::Match next = prefix_of(rest);
      std::string_view to = next.to;
      while (after_space && to.starts_with(' ')) to.remove_prefix(1);
      append(to, out);
      if (!to.empty()) after_space = to.ends_with(' ');
      after_space = after_space && rules_.remove_extra_spaces;
      rest.remove_prefix(next.bytes);
    }
    const std::string_view space = rules_.escape_spaces ? word_rule::kMark : " ";
    while (rules_.remove_extra_spaces && out.ends_with(space)) {
      out.erase(out.size() - space.size());
    }
    if (rules_.dummy_prefix && rules_.space_as_suffix) append(" ", out);
    return out;
  }

 private:
  void append(std::string_view text, std::string& out) const {
    for (const char c : text) {
      if (c == ' ' && rules_.escape_spaces) {
        out += word_rule::kMark;
      } else {
        out += c;
      }
    }
  }

  // What stands for the first bytes of `text`: a kept piece, the longest rule, or one character.
  [[nodiscard]] Charsmap::Match prefix_of(std::string_view text) const {
    if (begins_[static_cast<std::uint8_t>(text[0])]) {
      for (const std::string& piece : kept_) {
        if (text.starts_with(piece)) return {piece.size(), piece};
      }
    }
    if (charsmap_ != nullptr) {
      if (const Charsmap::Match match = charsmap_->match(text, true); match.bytes > 0) return match;
    }
    std::size_t length = 0;
    (void)first_code_point(text, length);
    return {length, text.substr(0, length)};
  }

  SentencePieceRules rules_;
  std::unique_ptr<Charsmap> charsmap_;
  std::vector<std::string> kept_;  // longest first
  std::array<bool, 256> begins_{};
};

}  // namespace

NormalizerPtr sentencepiece_normalizer(const SentencePieceRules& rules,
                                       std::unique_ptr<Charsmap> charsmap,
                                       std::vector<std::string> kept) {
  return std::make_unique<SentencePieceStep>(rules, std::move(charsmap), std::move(kept));
}

}  // namespace sluice
