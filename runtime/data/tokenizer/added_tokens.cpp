#include "runtime/data/tokenizer/added_tokens.hpp"

#include <utf8proc.h>

#include <algorithm>

#include "runtime/data/tokenizer/char_class.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

// The last or first character of a text; 0: none, or no valid one.
char32_t last_char(std::string_view text) {
  std::size_t at = text.size();
  while (at > 0 && text.size() - at < 4) {
    --at;
    if ((static_cast<std::uint8_t>(text[at]) & 0xC0U) == 0x80) continue;
    const std::string_view character = text.substr(at);
    std::size_t length = 0;
    return valid_utf8_prefix(character) == character.size() ? first_code_point(character, length)
                                                            : 0;
  }
  return 0;
}

char32_t first_char(std::string_view text) {
  const std::string_view head = text.substr(0, 4);
  std::size_t length = 0;
  return valid_utf8_prefix(head) == 0 ? 0 : first_code_point(head, length);
}

// \w: letters, marks, decimal and letter numbers, connectors, joiners.
bool is_word(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return code == 0x200C || code == 0x200D || (code >= 0x24B6 && code <= 0x24E9) ||
             (code >= 0x1F130 && code <= 0x1F149) || (code >= 0x1F150 && code <= 0x1F169) ||
             (code >= 0x1F170 && code <= 0x1F189);
  }
}

bool is_space(char32_t code) { return code != 0 && (char_classes().of_code[code] & kSpace) != 0; }

std::size_t utf8_bytes(char32_t code) {
  return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& text = tokens_[i].content;
    if (!text.empty()) by_byte_[static_cast<std::uint8_t>(text[0])].push_back(i);
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    auto& candidates = by_byte_[byte];
    if (!candidates.empty()) first_bytes_ += static_cast<char>(byte);
    std::stable_sort(candidates.begin(), candidates.end(), [&](std::size_t a, std::size_t b) {
      return tokens_[a].content.size() > tokens_[b].content.size();
    });
  }
}

const AddedToken* AddedTokens::token_at(std::string_view text) const {
  for (const std::size_t i : by_byte_[static_cast<std::uint8_t>(text[0])]) {
    if (text.starts_with(tokens_[i].content)) return &tokens_[i];
  }
  return nullptr;
}

std::size_t AddedTokens::next_candidate(std::string_view text, std::size_t from) const {
  if (first_bytes_.empty() || from >= text.size()) return text.size();
  const std::size_t found = first_bytes_.size() == 1 ? text.find(first_bytes_[0], from)
                                                     : text.find_first_of(first_bytes_, from);
  return std::min(found, text.size());
}

void AddedTokens::visit(
    std::string_view text,
    const std::function<void(std::string_view part, std::int32_t id)>& visit) const {
  std::size_t done = 0;
  for (std::size_t at = next_candidate(text, 0); at < text.size(); at = next_candidate(text, at)) {
    const AddedToken* const token = token_at(text.substr(at));
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t first = at;
    at += token->content.size();
    std::size_t end = at;
    if (token->is_text) continue;
    if (token->single_word &&
        (is_word(last_char(text.substr(0, first))) || is_word(first_char(text.substr(end))))) {
      continue;
    }
    while (token->lstrip && first > done) {
      const char32_t before = last_char(text.substr(0, first));
      if (!is_space(before)) break;
      first -= utf8_bytes(before);
    }
    while (token->rstrip && end < text.size()) {
      const char32_t behind = first_char(text.substr(end));
      if (!is_space(behind)) break;
      end += utf8_bytes(behind);
    }
    if (first > done) visit(text.substr(done, first - done), -1);
    visit(text.substr(first, end - std::min(first, end)), token->id);
    done = end;
  }
  if (done < text.size()) visit(text.substr(done), -1);
}

}  // namespace sluice
