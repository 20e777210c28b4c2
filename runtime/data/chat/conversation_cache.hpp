// Conversations that are templated and tokenised once. Two files in the folder of token caches:
//
//   KEY.tokens         a token cache (token_cache.hpp), a document for each conversation, 4 bytes a
//                      token: the id, and kLearnedBit if the token is learned
//   KEY.conversations  ConversationsHeader | the reasons of what is left out, text | zeros up to a
//                      multiple of 8 | ConversationRecord[conversations]
//
// The key is a hash of the encoder's fingerprint, the format, and each file's path, size and
// modification time, and whether the user named the file. A line of the text: problem, file, place
// (as in ConversationRecord), reason, with tabs between.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/posix/map.hpp"
#include "runtime/data/chat/chat_encoder.hpp"
#include "runtime/data/chat/conversation.hpp"
#include "runtime/data/token_cache.hpp"

namespace sluice {

inline constexpr std::int64_t kLearnedBit = std::int64_t{1} << 31;

struct ConversationsHeader {
  char magic[8];               // "SLUICECV"
  std::int64_t version;        // 2
  std::int64_t conversations;  // that are in the cache
  std::int64_t text_bytes;
  std::array<std::int64_t, kConversationProblems> left_out;
  std::uint64_t records_hash;  // XXH3-64 of the records' bytes
  char key[32];
  std::uint64_t header_hash;  // XXH3-64 of the bytes above
};
static_assert(sizeof(ConversationsHeader) == 136);

struct ConversationRecord {
  std::int64_t place;  // the line, plus 2^32 times the number of an item in a list
  std::int32_t file;
  std::int32_t learned;  // tokens that are learned, without the first one, which is no target
};
static_assert(sizeof(ConversationRecord) == 16);

struct ConversationRequest {
  std::string folder;  // of caches
  std::vector<TextFile> files;
  ConversationFormat format = ConversationFormat::kAuto;
  const ChatEncoder* encoder = nullptr;
  int threads = 0;                      // 0: the machine's, at most 16
  std::size_t round_bytes = 2U << 20U;  // of text that one thread has in hand
};

// Thread-safe after construction.
class ConversationCache : public DocumentSource {
 public:
  // As TokenCache's functions of these names.
  static std::shared_ptr<const ConversationCache> open_or_build(const ConversationRequest& request);
  static std::shared_ptr<const ConversationCache> open_existing(const ConversationRequest& request);

  [[nodiscard]] std::int64_t size() const override { return tokens_->size(); }
  // Ids with kLearnedBit.
  void read(std::int64_t first, std::span<std::int64_t> out) const override {
    tokens_->read(first, out);
  }
  [[nodiscard]] std::span<const std::int64_t> document_starts() const override {
    return tokens_->document_starts();
  }
  [[nodiscard]] LearnedTokens tokens_of(std::int64_t conversation) const;
  [[nodiscard]] std::span<const ConversationRecord> records() const;
  [[nodiscard]] std::string place(std::int64_t conversation) const;  // "FILE, line 7, item 3"
  [[nodiscard]] ConversationCounts counts() const;
  // A line for each problem: how many conversations are left out, and the first places of them.
  [[nodiscard]] std::vector<std::string> problems() const;

 private:
  ConversationCache(const ConversationRequest& request, std::shared_ptr<const TokenCache> tokens,
                    const std::string& path);

  std::shared_ptr<const TokenCache> tokens_;
  MappedFile beside_;
  ConversationsHeader header_{};
  std::vector<TextFile> files_;
};

inline constexpr int kShownPlaces = 3;  // of each problem in the log

}  // namespace sluice
