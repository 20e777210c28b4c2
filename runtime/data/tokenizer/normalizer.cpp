#include "runtime/data/tokenizer/normalizer.hpp"

#include <utf8proc.h>

#include <cstdlib>

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

struct Release {
  void operator()(utf8proc_uint8_t* text) const { std::free(text); }
};

std::string formed(const std::string& text, UnicodeForm form) {
  const bool compose = form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc;
  const bool compatible = form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd;
  const int options = UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                      (compatible ? UTF8PROC_COMPAT : 0);
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t bytes = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
      static_cast<utf8proc_ssize_t>(text.size()), &made, static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, Release> owner(made);
  if (bytes < 0) {
    throw Error(std::string("Unicode normalisation fails: ") + utf8proc_errmsg(bytes));
  }
  return {reinterpret_cast<const char*>(made), static_cast<std::size_t>(bytes)};
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
