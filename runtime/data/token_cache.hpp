// Text that is tokenised once, as a memory-mapped file. Format, version 1, little-endian
// (README.md):
//
//   TokenCacheHeader | tokens u16 or u32 | zeros up to a multiple of 8 | document starts
//   i64[documents + 1]
//
// A document (document_reader.hpp) is its tokens, then end-of-text. Empty documents and binary
// files are left out. The file's name is the hash of the tokenizer's document fingerprint, of each
// file's path, size and modification time, and of the JSON key (add_text_files). So any change
// gives another cache. The program never removes the old cache.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/posix/map.hpp"
#include "runtime/data/document_reader.hpp"
#include "runtime/data/hash.hpp"
#include "runtime/data/text_files.hpp"
#include "runtime/data/token_source.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"

namespace sluice {

struct TokenCacheHeader {
  char magic[8];              // "SLUICETK"
  std::uint32_t version;      // 1
  std::uint32_t token_bytes;  // 2 where vocab <= 65536, else 4
  std::int64_t vocab;         // ids are below this
  std::int64_t tokens;
  std::int64_t documents;
  std::uint64_t tokens_hash;  // XXH3-64 of the tokens' bytes
  std::uint64_t starts_hash;  // XXH3-64 of the document starts' bytes
  char key[32];               // hexadecimal, the file's name
  std::uint64_t header_hash;  // XXH3-64 of the bytes above
};
static_assert(sizeof(TokenCacheHeader) == 96);

inline constexpr std::string_view kTokenCacheMagic = "SLUICETK";
inline constexpr std::uint32_t kTokenCacheVersion = 1;
[[nodiscard]] std::uint64_t hash_of_header(const TokenCacheHeader& header);

struct TokenCacheRequest {
  std::string folder;  // made if missing
  std::vector<TextFile> files;
  const Tokenizer* tokenizer = nullptr;
  int threads = 0;   // 0: the machine's, at most 16
  ReadOptions read;  // read.piece_bytes: text that one thread has in hand
  // Called between pieces with the bytes done and the total. An exception ends the build. Without a
  // callback a line is logged every ten seconds.
  std::function<void(std::int64_t, std::int64_t)> progress;
};

// An open cache. Thread-safe.
class TokenCache : public DocumentSource {
 public:
  // Opens the request's cache; builds it if it is missing or damaged. One of several processes
  // builds, the others wait. Throws IoError if a file cannot be read, a named file is empty, no
  // text is left to tokenise, or the folder cannot be written or is full.
  static std::shared_ptr<const TokenCache> open_or_build(const TokenCacheRequest& request);
  // Opens the request's cache if it is complete, else returns nothing. Writes no file.
  static std::shared_ptr<const TokenCache> open_existing(const TokenCacheRequest& request);
  // Throws IoError if the file is no complete cache. Does not read the tokens themselves.
  explicit TokenCache(const std::string& path);

  [[nodiscard]] std::int64_t size() const override { return header_.tokens; }
  void read(std::int64_t first, std::span<std::int64_t> out) const override;
  [[nodiscard]] std::span<const std::int64_t> document_starts() const override;
  [[nodiscard]] const TokenCacheHeader& header() const { return header_; }
  [[nodiscard]] const std::string& path() const { return file_.path(); }
  // Reads all tokens and throws IoError if they differ from the written ones.
  void verify() const;

 private:
  [[nodiscard]] std::int64_t token_bytes() const;  // of all tokens

  MappedFile file_;
  TokenCacheHeader header_{};
};

// Adds what tells the documents of files apart: path, size and modification time of each file, and
// the key of JSON lines.
void add_text_files(Hasher& hasher, const std::vector<TextFile>& files,
                    const std::string& json_key);

// The file of a cache, whatever it is made of.
struct TokenCacheFile {
  std::string folder, key;
  std::int64_t vocab = 0;
  // False: the files beside are not whole, so that the cache counts as missing.
  std::function<bool()> whole_beside = [] { return true; };

  [[nodiscard]] std::string path() const { return folder + "/" + key + ".tokens"; }
  // The cache if it is whole and its own, else nothing. Writes no file.
  [[nodiscard]] std::shared_ptr<const TokenCache> open() const;
  // The same; if there is none, `build` writes it to path() under the lock of the key.
  [[nodiscard]] std::shared_ptr<const TokenCache> open_or_build(
      const std::function<void()>& build) const;
};

// The 32 digits in the name of this request's cache.
[[nodiscard]] std::string token_cache_key(const TokenCacheRequest& request);

}  // namespace sluice
