#include <algorithm>

#include "runtime/data/chat/chat_template.hpp"
#include "runtime/data/tokenizer/added_tokens.hpp"

namespace sluice {
namespace {

using jinja::Span;

std::vector<std::int32_t> encode(const Tokenizer& tokenizer, std::string_view text,
                                 bool continued) {
  return continued ? tokenizer.encode_continued(text) : tokenizer.encode(text);
}

// End of each token in the text; empty if the tokens do not spell it.
std::vector<std::size_t> token_ends(const Tokenizer& tokenizer, std::string_view text,
                                    const std::vector<std::int32_t>& ids, bool continued) {
  std::vector<std::size_t> ends;
  std::size_t end = 0;
  for (const std::int32_t& id : ids) {
    const bool is_first = ends.empty() && !continued;
    std::string bytes = is_first ? tokenizer.decode(std::span(&id, 1))
                                 : tokenizer.decode_continued(std::span(&id, 1));
    // SentencePiece's mark behind a special token decodes to a space that the text may lack.
    if (bytes.starts_with(' ') && (end == text.size() || text[end] != ' ')) bytes.erase(0, 1);
    if (text.compare(end, bytes.size(), bytes) != 0) return {};
    end += bytes.size();
    ends.push_back(end);
  }
  return end == text.size() ? ends : std::vector<std::size_t>{};
}

// Each part between the ends of spans by itself.
LearnedTokens encode_parts(const Tokenizer& tokenizer, const RenderedChat& chat, bool continued) {
  LearnedTokens result;
  const auto add = [&](std::size_t begin, std::size_t end, bool learned) {
    if (begin == end) return;
    const std::string_view part = std::string_view(chat.text).substr(begin, end - begin);
    const auto ids = encode(tokenizer, part, continued);
    result.ids.insert(result.ids.end(), ids.begin(), ids.end());
    result.learned.resize(result.ids.size(), learned);
  };
  std::size_t at = 0;
  for (const Span& span : chat.learned) {
    add(at, span.begin, false);
    add(span.begin, span.end, true);
    at = span.end;
  }
  add(at, chat.text.size(), false);
  return result;
}

// `continued`: behind a special token, where no mark is put before the text.
LearnedTokens encode_plain(const Tokenizer& tokenizer, const RenderedChat& chat, bool continued) {
  LearnedTokens result{encode(tokenizer, chat.text, continued), {}};
  const std::vector<std::size_t> ends = token_ends(tokenizer, chat.text, result.ids, continued);
  if (ends.empty() && !chat.text.empty()) return encode_parts(tokenizer, chat, continued);
  result.learned.resize(result.ids.size());
  auto span = chat.learned.begin();
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const std::size_t begin = i == 0 ? 0 : ends[i - 1];
    while (span != chat.learned.end() && span->end <= begin) ++span;
    // A token without a byte, a mark, belongs to the text that follows.
    const std::size_t end = std::max(ends[i], begin + 1);
    result.learned[i] = span != chat.learned.end() && span->begin < end;
  }
  return result;
}

// Special tokens whose names the tokenizer takes for ordinary text: templates write them as text.
AddedTokens unrecognised(const Tokenizer& tokenizer) {
  if (tokenizer.splits_special()) return {};
  const std::span<const AddedToken> chat = tokenizer.chat_tokens();
  std::vector<AddedToken> specials(chat.begin(), chat.end());
  std::vector<std::int32_t> ids(tokenizer.leading().begin(), tokenizer.leading().end());
  ids.push_back(tokenizer.end_of_text());
  for (const std::int32_t id : ids) {
    AddedToken token;
    token.content = tokenizer.decode({&id, 1});
    token.id = id;
    if (token.content.empty() || tokenizer.encode(token.content) == std::vector{id}) continue;
    specials.push_back(std::move(token));
  }
  return AddedTokens(std::move(specials));
}

RenderedChat part_of(const RenderedChat& chat, std::size_t begin, std::size_t end) {
  RenderedChat part{chat.text.substr(begin, end - begin), {}};
  for (const Span& span : chat.learned) {
    const Span cut{std::max(span.begin, begin), std::min(span.end, end)};
    if (cut.begin < cut.end) part.learned.push_back({cut.begin - begin, cut.end - begin});
  }
  return part;
}

void append(const LearnedTokens& part, LearnedTokens& to) {
  to.ids.insert(to.ids.end(), part.ids.begin(), part.ids.end());
  to.learned.insert(to.learned.end(), part.learned.begin(), part.learned.end());
}

}  // namespace

LearnedTokens encode_chat(const Tokenizer& tokenizer, const RenderedChat& chat) {
  LearnedTokens result;
  std::size_t at = 0;
  unrecognised(tokenizer).visit(chat.text, [&](std::string_view text, std::int32_t id) {
    const RenderedChat part = part_of(chat, at, at + text.size());
    if (id < 0) {
      append(encode_plain(tokenizer, part, at > 0), result);
    } else {
      append({{id}, {static_cast<std::uint8_t>(!part.learned.empty())}}, result);
    }
    at += text.size();
  });
  return result;
}

LearnedTokens encode_completion(const Tokenizer& tokenizer, const Conversation& conversation,
                                TrainOn train_on) {
  const std::size_t begin = train_on == TrainOn::kAll ? 0 : conversation.prompt.size();
  RenderedChat chat{conversation.prompt + conversation.completion, {}};
  chat.learned.push_back({begin, chat.text.size()});
  LearnedTokens result = encode_chat(tokenizer, chat);
  result.ids.push_back(tokenizer.end_of_text());
  result.learned.push_back(1);
  return result;
}

}  // namespace sluice
