#include "runtime/data/tokenizer/normalizer.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "base/error.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

// Code points that every form leaves alone in every neighbourhood.
bool is_inert(char32_t code, UnicodeForm form) {
  if (code < 0xA0) return true;
  if (form == UnicodeForm::kNfc && code < 0x300) return true;
  if (form == UnicodeForm::kNfd && code < 0xC0) return true;
  const bool composed = form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc;
  if (composed && code >= 0xAC00 && code <= 0xD7A3) return true;
  return (code >= 0x3400 && code <= 0x4DBF) || (code >= 0x4E00 && code <= 0x9FFF);
}

// U+FDFA has the longest decomposition, 18 code points.
constexpr std::size_t kLongestDecomposition = 32;
using Codes = std::vector<utf8proc_int32_t>;

utf8proc_ssize_t checked(utf8proc_ssize_t result) {
  if (result >= 0) return result;
  throw Error(std::string("Unicode normalisation fails: ") + utf8proc_errmsg(result));
}

Codes decomposed(std::string_view text, utf8proc_option_t options) {
  Codes codes;
  codes.reserve(text.size());
  while (!text.empty()) {
    std::size_t length = 0;
    const char32_t code = first_code_point(text, length);
    text.remove_prefix(length);
    std::array<utf8proc_int32_t, kLongestDecomposition> parts{};
    int boundary = 0;
    const auto count = static_cast<std::size_t>(checked(utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(code), parts.data(), std::ssize(parts), options, &boundary)));
    check(count <= parts.size(), "a code point decomposes into few");
    codes.insert(codes.end(), parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(count));
  }
  return codes;
}

int combining_class(utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; }

// The canonical order: each run of combining marks by class. utf8proc_map sorts by exchanging
// neighbours, which takes quadratic time for a long run.
void sort_marks(Codes& codes) {
  const auto is_mark = [](utf8proc_int32_t code) { return combining_class(code) != 0; };
  const auto is_before = [](utf8proc_int32_t a, utf8proc_int32_t b) {
    return combining_class(a) < combining_class(b);
  };
  for (auto begin = std::find_if(codes.begin(), codes.end(), is_mark); begin != codes.end();) {
    const auto end = std::find_if_not(begin, codes.end(), is_mark);
    std::stable_sort(begin, end, is_before);
    begin = std::find_if(end, codes.end(), is_mark);
  }
}

// As utf8proc_map, in n log n.
std::string formed(const std::string& text, UnicodeForm form) {
  const bool compose = form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc;
  const bool compatible = form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd;
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
      (compatible ? UTF8PROC_COMPAT : 0));
  Codes codes = decomposed(text, options);
  sort_marks(codes);
  if (compose) {
    codes.resize(static_cast<std::size_t>(
        checked(utf8proc_normalize_utf32(codes.data(), std::ssize(codes), options))));
  }
  std::string out;
  out.reserve(text.size());
  for (const utf8proc_int32_t code : codes) append_utf8(static_cast<char32_t>(code), out);
  return out;
}

class FormStep : public NormalizerStep {
 public:
  explicit FormStep(UnicodeForm form) : form_(form) {}
  [[nodiscard]] std::string apply(std::string text, bool, SplitBudget&) const override {
    return in_form(std::move(text), form_);
  }

 private:
  UnicodeForm form_;
};

template <typename Change>
class CharStep : public NormalizerStep {
 public:
  explicit CharStep(Change change) : change_(change) {}
  [[nodiscard]] std::string apply(std::string text, bool, SplitBudget&) const override {
    std::string out;
    out.reserve(text.size());
    for (std::string_view rest = text; !rest.empty();) {
      std::size_t length = 0;
      change_(first_code_point(rest, length), out);
      rest.remove_prefix(length);
    }
    return out;
  }

 private:
  Change change_;
};

void append_lower(char32_t code, std::string& out) {
  if (code == 0x130) {  // the one letter whose lower case has two code points
    out += "i\u0307";
  } else {
    append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))), out);
  }
}

void append_unless_mark(char32_t code, std::string& out) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  const bool mark = category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
                    category == UTF8PROC_CATEGORY_ME;
  if (!mark) append_utf8(code, out);
}

bool is_space(std::string_view character) {
  std::size_t length = 0;
  return (char_classes().of_code[first_code_point(character, length)] & kSpace) != 0;
}

class StripStep : public NormalizerStep {
 public:
  StripStep(bool left, bool right) : left_(left), right_(right) {}
  [[nodiscard]] std::string apply(std::string text, bool continued, SplitBudget&) const override {
    std::string_view rest = text;
    while (left_ && !continued && !rest.empty() && is_space(rest)) {
      std::size_t length = 0;
      (void)first_code_point(rest, length);
      rest.remove_prefix(length);
    }
    while (right_ && !rest.empty()) {
      std::size_t last = rest.size() - 1;
      while ((static_cast<std::uint8_t>(rest[last]) & 0xC0U) == 0x80) --last;
      if (!is_space(rest.substr(last))) break;
      rest.remove_suffix(rest.size() - last);
    }
    return std::string(rest);
  }

 private:
  bool left_, right_;
};

class PrependStep : public NormalizerStep {
 public:
  explicit PrependStep(std::string prefix) : prefix_(std::move(prefix)) {}
  [[nodiscard]] std::string apply(std::string text, bool continued, SplitBudget&) const override {
    return text.empty() || continued ? text : prefix_ + text;
  }

 private:
  std::string prefix_;
};

class ReplaceStep : public NormalizerStep {
 public:
  ReplaceStep(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  [[nodiscard]] std::string apply(std::string text, bool, SplitBudget&) const override {
    if (from_.empty()) return text;
    std::string out;
    std::size_t done = 0;
    for (std::size_t at = text.find(from_); at != std::string::npos; at = text.find(from_, done)) {
      out.append(text, done, at - done);
      out += to_;
      done = at + from_.size();
    }
    return done == 0 ? text : out.append(text, done);
  }

 private:
  std::string from_, to_;
};

class PatternStep : public NormalizerStep {
 public:
  PatternStep(const std::string& pattern, std::string to) : pattern_(pattern), to_(std::move(to)) {}
  [[nodiscard]] std::string apply(std::string text, bool, SplitBudget& budget) const override {
    std::vector<SplitPart> parts;
    pattern_.parts(text, parts, budget);
    std::string out;
    for (const SplitPart& part : parts) out += part.is_match ? std::string_view(to_) : part.text;
    return out;
  }

 private:
  SplitPattern pattern_;
  std::string to_;
};

class PrecompiledStep : public NormalizerStep {
 public:
  explicit PrecompiledStep(Charsmap charsmap) : charsmap_(std::move(charsmap)), graphemes_("\\X") {}
  [[nodiscard]] std::string apply(std::string text, bool, SplitBudget& budget) const override {
    std::string out;
    std::vector<SplitPart> parts;
    graphemes_.parts(text, parts, budget);
    for (const SplitPart& part : parts) {
      if (part.text.size() < 6 && append_rule(part.text, out)) continue;
      for (std::string_view rest = part.text; !rest.empty();) {
        std::size_t length = 0;
        (void)first_code_point(rest, length);
        if (!append_rule(rest.substr(0, length), out)) out += rest.substr(0, length);
        rest.remove_prefix(length);
      }
    }
    return out;
  }

 private:
  // The first rule for a prefix stands for the whole text.
  bool append_rule(std::string_view text, std::string& out) const {
    const Charsmap::Match match = charsmap_.match(text, false);
    if (match.bytes > 0) out += match.to;
    return match.bytes > 0;
  }
  Charsmap charsmap_;
  SplitPattern graphemes_;
};

}  // namespace

std::string in_form(std::string text, UnicodeForm form) {
  for (std::string_view rest = text; !rest.empty();) {
    std::size_t length = 0;
    if (!is_inert(first_code_point(rest, length), form)) return formed(text, form);
    rest.remove_prefix(length);
  }
  return text;
}

NormalizerPtr unicode_form(UnicodeForm form) { return std::make_unique<FormStep>(form); }
NormalizerPtr lowercase() {
  return std::make_unique<CharStep<decltype(&append_lower)>>(&append_lower);
}
NormalizerPtr strip_accents() {
  return std::make_unique<CharStep<decltype(&append_unless_mark)>>(&append_unless_mark);
}
NormalizerPtr strip_spaces(bool left, bool right) {
  return std::make_unique<StripStep>(left, right);
}
NormalizerPtr prepend(std::string prefix) {
  return std::make_unique<PrependStep>(std::move(prefix));
}
NormalizerPtr replace(std::string from, std::string to) {
  return std::make_unique<ReplaceStep>(std::move(from), std::move(to));
}
NormalizerPtr replace_pattern(const std::string& pattern, std::string to) {
  return std::make_unique<PatternStep>(pattern, std::move(to));
}
NormalizerPtr precompiled(Charsmap charsmap) {
  return std::make_unique<PrecompiledStep>(std::move(charsmap));
}

std::string Normalizer::apply(std::string text, bool continued, SplitBudget& budget) const {
  for (const NormalizerPtr& step : steps_) text = step->apply(std::move(text), continued, budget);
  return text;
}

}  // namespace sluice
