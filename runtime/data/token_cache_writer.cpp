#include "runtime/data/token_cache_writer.hpp"

#include <algorithm>
#include <cstring>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/log.hpp"
#include "runtime/data/token_cache.hpp"

namespace sluice {

TokenCacheWriter::TokenCacheWriter(const std::string& path, std::int64_t vocab, bool wide)
    : file_(path), vocab_(vocab), wide_(wide) {
  const TokenCacheHeader blank{};
  file_.append(std::as_bytes(std::span(&blank, 1)));
}

void TokenCacheWriter::append(std::span<const std::int32_t> ids) {
  if (wide_) {
    put(std::as_bytes(ids));
  } else {
    const std::vector<std::uint16_t> narrow(ids.begin(), ids.end());
    put(std::as_bytes(std::span(narrow)));
  }
  tokens_ += static_cast<std::int64_t>(ids.size());
}

void TokenCacheWriter::end_document() { starts_.push_back(tokens_); }

void TokenCacheWriter::put(std::span<const std::byte> bytes) {
  hasher_.add_bytes(bytes);
  file_.append(bytes);
}

void pad_to_words(AtomicFile& file) {
  const std::int64_t padding = round_up(file.size(), 8) - file.size();
  file.append(std::string_view("\0\0\0\0\0\0\0", static_cast<std::size_t>(padding)));
}

void TokenCacheWriter::commit(const std::string& key) {
  pad_to_words(file_);
  const auto starts = std::as_bytes(std::span(starts_));
  file_.append(starts);
  TokenCacheHeader header{};
  std::memcpy(header.magic, kTokenCacheMagic.data(), sizeof header.magic);
  header.version = kTokenCacheVersion;
  header.token_bytes = wide_ ? 4 : 2;
  header.vocab = vocab_;
  header.tokens = tokens_;
  header.documents = documents();
  header.tokens_hash = hasher_.digest64();
  header.starts_hash = hash64(starts);
  std::memcpy(header.key, key.data(), sizeof header.key);
  header.header_hash = hash_of_header(header);
  file_.overwrite(0, std::as_bytes(std::span(&header, 1)));
  file_.commit();
}

void TokenisingLog::report(std::int64_t done_bytes) {
  const auto now = std::chrono::steady_clock::now();
  if (now - reported_ < std::chrono::seconds(10)) return;
  reported_ = now;
  const double seconds = std::chrono::duration<double>(now - started_).count();
  const double rate = static_cast<double>(done_bytes) / seconds;
  log_info("tokenising: " + format_bytes(done_bytes) + " of " + format_bytes(total_bytes_) + ", " +
           format_bytes(static_cast<std::int64_t>(rate)) + "/s, eta " +
           format_duration(static_cast<double>(total_bytes_ - done_bytes) / std::max(rate, 1.0)));
}

void TokenisingLog::finish(std::int64_t items, const char* noun, std::int64_t tokens) const {
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - started_;
  log_info("tokenised " + format_bytes(total_bytes_) + " in " + counted(items, noun) + " into " +
           format_count(static_cast<double>(tokens)) + " tokens, " +
           format_duration(spent.count()));
}

}  // namespace sluice
