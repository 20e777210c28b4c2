#include <algorithm>

#include "runtime/data/chat/chat_template.hpp"

namespace sluice {
namespace {

using jinja::Span;

// End of each token in the text; empty if the tokens do not spell it.
std::vector<std::size_t> token_ends(const Tokenizer& tokenizer, std::string_view text,
                                    const std::vector<std::int32_t>& ids) {
  std::vector<std::size_t> ends;
  std::size_t end = 0;
  for (const std::int32_t& id : ids) {
    std::string bytes = ends.empty() ? tokenizer.decode(std::span(&id, 1))
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
LearnedTokens encode_parts(const Tokenizer& tokenizer, const RenderedChat& chat) {
  LearnedTokens result;
  const auto add = [&](std::size_t begin, std::size_t end, bool learned) {
    if (begin == end) return;
    const auto ids = tokenizer.encode(std::string_view(chat.text).substr(begin, end - begin));
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

LearnedTokens encode_plain(const Tokenizer& tokenizer, const RenderedChat& chat) {
  LearnedTokens result{tokenizer.encode(chat.text), {}};
  const std::vector<std::size_t> ends = token_ends(tokenizer, chat.text, result.ids);
  if (ends.empty() && !chat.text.empty()) return encode_parts(tokenizer, chat);
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

struct Special {
  std::int32_t id;
  std::string name;
};

// Special tokens whose names the tokenizer takes for ordinary text: templates write them as text.
std::vector<Special> unrecognised(const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids(tokenizer.leading().begin(), tokenizer.leading().end());
  ids.push_back(tokenizer.end_of_text());
  std::vector<Special> specials;
  for (const std::int32_t id : ids) {
    std::string name = tokenizer.decode({&id, 1});
    if (name.empty() || tokenizer.encode(name) == std::vector{id}) continue;
    specials.push_back({id, std::move(name)});
  }
  return specials;
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
  const std::vector<Special> specials = unrecognised(tokenizer);
  LearnedTokens result;
  std::size_t at = 0;
  while (at < chat.text.size()) {
    std::size_t next = chat.text.size();
    const Special* found = nullptr;
    for (const Special& special : specials) {
      const std::size_t place = chat.text.find(special.name, at);
      if (place >= next) continue;
      next = place;
      found = &special;
    }
    append(encode_plain(tokenizer, part_of(chat, at, next)), result);
    if (found == nullptr) break;
    at = next + found->name.size();
    const RenderedChat name = part_of(chat, next, at);
    append({{found->id}, {static_cast<std::uint8_t>(!name.learned.empty())}}, result);
  }
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
