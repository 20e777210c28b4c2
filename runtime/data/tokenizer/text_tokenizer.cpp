#include "runtime/data/tokenizer/text_tokenizer.hpp"

#include <algorithm>
#include <deque>
#include <functional>

#include "base/index.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Each byte that is no UTF-8 stays; valid runs become change(run, whether it begins the text).
template <typename Change>
std::string by_valid_runs(std::string_view text, Change&& change) {
  std::string out;
  bool first = true;
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    if (valid > 0) {
      out += change(std::string(text.substr(0, valid)), first);
    } else {
      out += text[0];
    }
    text.remove_prefix(std::max<std::size_t>(valid, 1));
    first = false;
  }
  return out;
}

}  // namespace

TextTokenizer::TextTokenizer(TokenizerParts parts)
    : parts_(std::move(parts)), rule_(parts_.pre_tokenizer.only_rule()) {
  find_normalized_tokens();
}

// A token that is recognised in normalised text is searched in its own normalised form.
void TextTokenizer::find_normalized_tokens() {
  std::vector<AddedToken> raw, normalised;
  for (AddedToken& token : parts_.added) {
    if (!token.normalized) {
      raw.push_back(token);
      continue;
    }
    if (!token.is_normalized) {
      SplitBudget budget(token.content.size());
      token.content = parts_.normalizer.apply(token.content, false, budget);
      nth(parts_.pieces, token.id) = token.content;
    }
    normalised.push_back(token);
  }
  raw_ = AddedTokens(std::move(raw));
  in_normalised_ = AddedTokens(std::move(normalised));
}

std::int64_t TextTokenizer::vocab_size() const {
  return static_cast<std::int64_t>(parts_.pieces.size());
}

TokenKind TextTokenizer::kind(std::int32_t id) const {
  if (id < 0 || id >= vocab_size()) return TokenKind::kUnknown;
  if (id == parts_.unknown) return TokenKind::kUnknown;
  const std::string& piece = nth(parts_.pieces, id);
  const bool is_byte = parts_.byte_level ? piece.size() == 1 && (piece[0] & 0x80) != 0
                                         : byte_of_piece(piece).has_value();
  return is_byte ? TokenKind::kByte : TokenKind::kPiece;
}

std::vector<std::int32_t> TextTokenizer::encode(std::string_view text) const {
  return encode_part(text, false);
}

std::vector<std::int32_t> TextTokenizer::encode_continued(std::string_view text) const {
  return encode_part(text, true);
}

TextTokenizer::Ids TextTokenizer::encode_part(std::string_view text, bool continued) const {
  Ids ids;
  ids.reserve(text.size() / 3);
  SplitBudget budget(text.size());
  const char* section = text.data();
  try {
    raw_.visit(text, [&](std::string_view part, std::int32_t id) {
      if (id >= 0) return ids.push_back(id);
      section = part.data();
      const bool first = section == text.data();
      encode_section({part, first && !continued, first && continued}, budget, ids);
    });
  } catch (const SplitError& error) {
    // A place in a changed copy of the text is told as the section's.
    const std::less<const char*> before;
    const bool inside =
        !before(error.at(), text.data()) && before(error.at(), text.data() + text.size());
    const std::int64_t offset = (inside ? error.at() : section) - text.data();
    throw TokenizeError(parts_.name + ": " + error.what() + " at byte " + std::to_string(offset) +
                            " of the text; take that text out, or mend the pattern",
                        offset);
  }
  return ids;
}

std::string TextTokenizer::normalised(const Word& section, SplitBudget& budget) const {
  if (parts_.byte_level) {
    return by_valid_runs(section.text, [&](std::string run, bool first) {
      return parts_.normalizer.apply(std::move(run), section.continued || !first, budget);
    });
  }
  return parts_.normalizer.apply(with_valid_utf8(section.text), section.continued, budget);
}

void TextTokenizer::encode_section(Word section, SplitBudget& budget, Ids& out) const {
  std::string changed;
  std::string_view text = section.text;
  if (!parts_.byte_level || !parts_.normalizer.empty())
    text = changed = normalised(section, budget);
  in_normalised_.visit(text, [&](std::string_view part, std::int32_t id) {
    if (id >= 0) return out.push_back(id);
    const bool first = part.data() == text.data();
    encode_plain({part, first && section.first, first && section.continued}, budget, out);
  });
}

void TextTokenizer::encode_plain(Word text, SplitBudget& budget, Ids& out) const {
  if (!parts_.byte_level) return encode_valid(text, budget, out);
  while (!text.text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text.text);
    const std::size_t used = std::max<std::size_t>(valid, 1);
    if (valid == 0) {  // the pattern is not defined on bytes that are no text: each is a word
      parts_.words->encode(text.text.substr(0, 1), out);
    } else {
      encode_valid({text.text.substr(0, valid), text.first, text.continued}, budget, out);
    }
    text = {text.text.substr(used), false, true};
  }
}

void TextTokenizer::encode_valid(Word text, SplitBudget& budget, Ids& out) const {
  if (rule_ != WordRule::kNone) return parts_.words->encode_text(text.text, rule_, out);
  if (parts_.pre_tokenizer.empty()) return parts_.words->encode(text.text, out);
  std::deque<std::string> kept;
  for (const Word& word : parts_.pre_tokenizer.split(text, kept, budget)) {
    if (!word.text.empty()) parts_.words->encode(word.text, out);
  }
}

std::string TextTokenizer::text_of(std::span<const std::int32_t> ids, bool continued) const {
  std::vector<std::string> pieces;
  for (const std::int32_t id : ids) {
    const auto index = static_cast<std::size_t>(id);
    const bool known = id >= 0 && index < parts_.pieces.size() && !parts_.pieces[index].empty();
    pieces.emplace_back(known ? std::string_view(parts_.pieces[index]) : kReplacement);
  }
  return parts_.decoder.decode(std::move(pieces), continued);
}

std::string TextTokenizer::decode(std::span<const std::int32_t> ids) const {
  return text_of(ids, false);
}

std::string TextTokenizer::decode_continued(std::span<const std::int32_t> ids) const {
  return text_of(ids, true);
}

}  // namespace sluice
