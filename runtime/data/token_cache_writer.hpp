// Writes the file of a token cache (token_cache.hpp): documents in order, in constant memory but
// for the table of their starts. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/posix/atomic_file.hpp"
#include "runtime/data/hash.hpp"

namespace sluice {

class TokenCacheWriter {
 public:
  // `wide`: a token takes 4 bytes, else 2.
  TokenCacheWriter(const std::string& path, std::int64_t vocab, bool wide);

  void append(std::span<const std::int32_t> ids);
  void end_document();
  [[nodiscard]] std::int64_t tokens() const { return tokens_; }
  [[nodiscard]] std::int64_t documents() const {
    return static_cast<std::int64_t>(starts_.size()) - 1;
  }
  // The file appears as the cache of `key`, 32 digits.
  void commit(const std::string& key);

 private:
  void put(std::span<const std::byte> bytes);

  AtomicFile file_;
  const std::int64_t vocab_;
  const bool wide_;
  std::int64_t tokens_ = 0;
  std::vector<std::int64_t> starts_{0};
  Hasher hasher_;
};

// Appends zeros to a multiple of 8 bytes.
void pad_to_words(AtomicFile& file);

// Logs how far tokenising is, at most every ten seconds.
class TokenisingLog {
 public:
  explicit TokenisingLog(std::int64_t total_bytes) : total_bytes_(total_bytes) {}
  void report(std::int64_t done_bytes);
  // "tokenised 3 MiB in 12 documents into 4 k tokens, 2 s".
  void finish(std::int64_t items, const char* noun, std::int64_t tokens) const;

 private:
  const std::int64_t total_bytes_;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point reported_ = started_;
};

}  // namespace sluice
