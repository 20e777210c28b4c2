#include "runtime/data/chat/conversation_cache.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/posix/atomic_file.hpp"
#include "runtime/data/file_io.hpp"
#include "runtime/data/hash.hpp"
#include "runtime/data/parallel_items.hpp"
#include "runtime/data/token_cache_writer.hpp"

namespace sluice {
namespace {

constexpr std::string_view kConversationMagic = "SLUICECV";
constexpr std::int64_t kConversationVersion = 2;
constexpr std::size_t kMostOfARound = 4096;  // conversations
// Bytes that a conversation holds in memory besides its text, roughly.
constexpr std::size_t kConversationBytes = 1024;

std::uint64_t hash_of(const ConversationsHeader& header) {
  return hash64(
      std::as_bytes(std::span(&header, 1)).first(offsetof(ConversationsHeader, header_hash)));
}

// What one item of a list adds to ConversationRecord::place.
constexpr std::int64_t kOneItem = std::int64_t{1} << 32U;

template <class Object>  // Conversation, LeftOut
std::int64_t packed_place(const Object& object) {
  return std::min(object.line, kOneItem - 1) + object.item * kOneItem;
}

std::string place_text(const TextFile& file, std::int64_t packed) {
  return place_in_list(file, packed % kOneItem, packed / kOneItem);
}

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\t' || c == '\r'; }, ' ');
  return text;
}

// A conversation on its way, or why it is left out.
struct Item {
  Conversation conversation;
  LeftOut left_out;
  std::int32_t file = 0;
  LearnedTokens tokens{};
};

std::size_t text_bytes(const Conversation& conversation) {
  const std::int64_t weight = conversation.is_completion() ? 0 : conversation.messages.weight();
  return kConversationBytes + conversation.prompt.size() + conversation.completion.size() +
         static_cast<std::size_t>(weight);
}

// Rounds, as in token_cache.cpp: all threads encode, then one writes in order.
class ConversationBuilder {
 public:
  ConversationBuilder(const ConversationRequest& request, const TokenCacheFile& file,
                      const std::string& beside)
      : request_(request),
        key_(file.key),
        tokens_(file.path(), file.vocab, true),
        beside_(beside),
        threads_(threads_or_default(request.threads)),
        total_bytes_(bytes_of(request.files)),
        log_(total_bytes_) {}

  void build() {
    const ConversationsHeader blank{};
    beside_.append(std::as_bytes(std::span(&blank, 1)));
    for (std::size_t f = 0; f < request_.files.size(); ++f) add_file(static_cast<std::int32_t>(f));
    end_round();
    finish();
  }

 private:
  void add_file(std::int32_t index) {
    const TextFile& file = request_.files[static_cast<std::size_t>(index)];
    const auto add = [&](Item&& item) {
      item.file = index;
      held_bytes_ += text_bytes(item.conversation);
      round_.push_back(std::move(item));
      const std::size_t most = request_.round_bytes * static_cast<std::size_t>(threads_);
      if (held_bytes_ >= most || round_.size() >= kMostOfARound) end_round();
    };
    (void)read_conversations(file, request_.format,
                             {[&](Conversation&& talk) {
                                add({std::move(talk), {}});
                              },
                              [&](const LeftOut& left_out) {
                                add({{}, left_out});
                              }});
    done_bytes_ += file.size_bytes;
  }

  static void refuse(Item& item, std::string reason) {
    const Conversation& at = item.conversation;
    item.left_out = {ConversationProblem::kTemplate, at.line, std::move(reason), at.item};
  }

  void encode(Item& item) const {
    if (!item.left_out.reason.empty()) return;
    try {
      item.tokens = request_.encoder->encode(item.conversation);
    } catch (const jinja::RenderError& error) {
      refuse(item, error.what());
    } catch (const TokenizeError& error) {
      refuse(item, error.what());
    }
  }

  void end_round() {
    for_each_item(held_bytes_ < 65536 ? 1 : threads_, round_.size(),
                  [this](std::size_t i) { encode(round_[i]); });
    for (const Item& item : round_) write(item);
    round_.clear();
    held_bytes_ = 0;
    log_.report(done_bytes_);
  }

  void write(const Item& item) {
    if (!item.left_out.reason.empty()) {
      const auto problem = static_cast<std::size_t>(item.left_out.problem);
      ++left_out_[problem];
      const std::string line = std::to_string(problem) + "\t" + std::to_string(item.file) + "\t" +
                               std::to_string(packed_place(item.left_out)) + "\t" +
                               one_line(item.left_out.reason) + "\n";
      beside_.append(line);
      text_bytes_ += static_cast<std::int64_t>(line.size());
      return;
    }
    std::vector<std::int32_t> words = item.tokens.ids;
    std::int32_t learned = 0;
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (item.tokens.learned[i] == 0) continue;
      words[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(words[i]) |
                                           static_cast<std::uint32_t>(kLearnedBit));
      learned += i > 0 ? 1 : 0;
    }
    tokens_.append(words);
    tokens_.end_document();
    records_.push_back({packed_place(item.conversation), item.file, learned});
  }

  void finish() {
    pad_to_words(beside_);
    const auto records = std::as_bytes(std::span(records_));
    beside_.append(records);
    ConversationsHeader header{};
    std::memcpy(header.magic, kConversationMagic.data(), sizeof header.magic);
    header.version = kConversationVersion;
    header.conversations = static_cast<std::int64_t>(records_.size());
    header.text_bytes = text_bytes_;
    header.left_out = left_out_;
    header.records_hash = hash64(records);
    std::memcpy(header.key, key_.data(), sizeof header.key);
    header.header_hash = hash_of(header);
    beside_.overwrite(0, std::as_bytes(std::span(&header, 1)));
    beside_.commit();  // before the tokens: a cache with tokens is whole
    tokens_.commit(key_);
    log_.finish(header.conversations, "conversation", tokens_.tokens());
  }

  const ConversationRequest& request_;
  const std::string key_;
  TokenCacheWriter tokens_;
  AtomicFile beside_;
  const int threads_;
  const std::int64_t total_bytes_;
  TokenisingLog log_;
  std::int64_t done_bytes_ = 0, text_bytes_ = 0;
  std::vector<Item> round_;
  std::size_t held_bytes_ = 0;
  std::array<std::int64_t, kConversationProblems> left_out_{};
  std::vector<ConversationRecord> records_;
};

std::string key_of(const ConversationRequest& request) {
  Hasher hasher;
  hasher.add("sluice conversation cache");
  hasher.add(kConversationVersion);
  hasher.add(request.encoder->fingerprint());
  hasher.add(static_cast<std::int64_t>(request.format));
  for (const TextFile& file : request.files) {
    hasher.add(std::int64_t{file.named});  // a named binary is an error, a found one is left out
    add_identity(hasher, file);
  }
  return hasher.digest_hex();
}

// The header if the file is whole and the key's.
std::optional<ConversationsHeader> header_of(const MappedFile& file, const std::string& key) {
  const auto bytes = file.bytes();
  ConversationsHeader header{};
  if (bytes.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::string_view(header.magic, sizeof header.magic) != kConversationMagic ||
      header.version != kConversationVersion || header.header_hash != hash_of(header) ||
      std::string_view(header.key, sizeof header.key) != key) {
    return std::nullopt;
  }
  const std::int64_t records = round_up(std::int64_t{sizeof header} + header.text_bytes, 8);
  const auto size = static_cast<std::int64_t>(bytes.size());
  const auto each = std::int64_t{sizeof(ConversationRecord)};
  if (size != records + header.conversations * each ||
      hash64(bytes.subspan(static_cast<std::size_t>(records))) != header.records_hash) {
    return std::nullopt;
  }
  return header;
}

std::string beside_of(const TokenCacheFile& file) {
  return file.folder + "/" + file.key + ".conversations";
}

TokenCacheFile file_of(const ConversationRequest& request) {
  TokenCacheFile file{.folder = request.folder,
                      .key = key_of(request),
                      .vocab = request.encoder->tokenizer().vocab_size()};
  file.whole_beside = [beside = beside_of(file), key = file.key] {
    return path_exists(beside) && header_of(MappedFile(beside), key);
  };
  return file;
}

struct Reason {
  std::size_t problem = 0, file = 0;
  std::int64_t place = 0;
  std::string_view text;
};

// Cuts the first line off `text`.
Reason next_reason(std::string_view& text) {
  std::array<std::string_view, 4> fields{};
  std::string_view rest = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), rest.size() + 1));
  for (std::size_t i = 0; i < 3; ++i) {
    const std::size_t tab = std::min(rest.find('\t'), rest.size());
    fields[i] = rest.substr(0, tab);
    rest.remove_prefix(std::min(rest.size(), tab + 1));
  }
  Reason reason{.text = rest};
  const auto number = [](std::string_view field, auto& value) {
    (void)std::from_chars(field.data(), field.data() + field.size(), value);
  };
  number(fields[0], reason.problem);
  number(fields[1], reason.file);
  number(fields[2], reason.place);
  return reason;
}

}  // namespace

std::shared_ptr<const ConversationCache> ConversationCache::open_or_build(
    const ConversationRequest& request) {
  const TokenCacheFile file = file_of(request);
  auto tokens =
      file.open_or_build([&] { ConversationBuilder(request, file, beside_of(file)).build(); });
  return std::shared_ptr<const ConversationCache>(
      new ConversationCache(request, std::move(tokens), beside_of(file)));
}

std::shared_ptr<const ConversationCache> ConversationCache::open_existing(
    const ConversationRequest& request) {
  const TokenCacheFile file = file_of(request);
  auto tokens = file.open();
  if (tokens == nullptr) return nullptr;
  return std::shared_ptr<const ConversationCache>(
      new ConversationCache(request, std::move(tokens), beside_of(file)));
}

ConversationCache::ConversationCache(const ConversationRequest& request,
                                     std::shared_ptr<const TokenCache> tokens,
                                     const std::string& path)
    : tokens_(std::move(tokens)), beside_(path), files_(request.files) {
  const TokenCacheHeader& of_tokens = tokens_->header();
  const auto header = header_of(beside_, std::string(of_tokens.key, sizeof of_tokens.key));
  if (!header || header->conversations != of_tokens.documents) {
    throw IoError("conversation cache " + path + " is damaged; remove it to tokenise again", path);
  }
  header_ = *header;
}

LearnedTokens ConversationCache::tokens_of(std::int64_t conversation) const {
  const auto starts = document_starts();
  const auto index = static_cast<std::size_t>(conversation);
  std::vector<std::int64_t> words(static_cast<std::size_t>(starts[index + 1] - starts[index]));
  read(starts[index], words);
  LearnedTokens result;
  for (const std::int64_t word : words) {
    result.ids.push_back(static_cast<std::int32_t>(word & (kLearnedBit - 1)));
    result.learned.push_back((word & kLearnedBit) != 0);
  }
  return result;
}

std::span<const ConversationRecord> ConversationCache::records() const {
  const auto count = static_cast<std::size_t>(header_.conversations);
  const auto bytes = beside_.bytes().last(count * sizeof(ConversationRecord));
  return {reinterpret_cast<const ConversationRecord*>(bytes.data()), count};
}

std::string ConversationCache::place(std::int64_t conversation) const {
  const ConversationRecord& record = records()[static_cast<std::size_t>(conversation)];
  return place_text(files_.at(static_cast<std::size_t>(record.file)), record.place);
}

ConversationCounts ConversationCache::counts() const {
  return {.read = header_.conversations, .left_out = header_.left_out};
}

std::vector<std::string> ConversationCache::problems() const {
  std::array<std::int64_t, kConversationProblems> shown{};
  std::array<std::string, kConversationProblems> places;
  std::string_view text(reinterpret_cast<const char*>(beside_.bytes().data()) + sizeof header_,
                        static_cast<std::size_t>(header_.text_bytes));
  const auto complete = [&](std::size_t p) {
    return shown[p] >= std::min<std::int64_t>(header_.left_out[p], kShownPlaces);
  };
  std::size_t open = kConversationProblems;
  for (std::size_t p = 0; p < places.size(); ++p) open -= complete(p) ? 1U : 0U;
  while (!text.empty() && open > 0) {
    const Reason reason = next_reason(text);
    const std::size_t p = std::min(reason.problem, kConversationProblems - 1);
    if (complete(p)) continue;
    ++shown[p];
    places[p] += (places[p].empty() ? "" : "; ") +
                 place_text(files_.at(reason.file), reason.place) + ": " + std::string(reason.text);
  }
  std::vector<std::string> lines;
  for (std::size_t p = 0; p < places.size(); ++p) {
    if (header_.left_out[p] == 0) continue;
    lines.push_back("left out " + std::to_string(header_.left_out[p]) + " " +
                    std::string(name_of(static_cast<ConversationProblem>(p))) + ": " + places[p] +
                    (header_.left_out[p] > kShownPlaces ? "; ..." : ""));
  }
  return lines;
}

}  // namespace sluice
