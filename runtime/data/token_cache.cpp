#include "runtime/data/token_cache.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/posix/atomic_file.hpp"
#include "runtime/data/file_io.hpp"
#include "runtime/data/hash.hpp"
#include "runtime/data/parallel_items.hpp"
#include "runtime/data/token_cache_writer.hpp"

namespace sluice {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t kMostSegments =
    4096;  // of one round, so that many small files are few rounds

// A piece of one document on its way through the tokenizer.
struct Segment {
  DocumentPiece piece;
  const TextFile* file = nullptr;
  std::vector<std::int32_t> ids;
};

// Reads, tokenises and writes in rounds: a round's segments are encoded by all threads, then
// written in order. So memory stays at a few pieces a thread, whatever the size of the text.
class Builder {
 public:
  Builder(const TokenCacheRequest& request, const std::string& path)
      : request_(request),
        file_(path, request.tokenizer->vocab_size(), request.tokenizer->vocab_size() > 65536),
        threads_(threads_or_default(request.threads)),
        total_bytes_(bytes_of(request.files)),
        log_(total_bytes_) {}

  void build(const std::string& key) {
    for (const TextFile& file : request_.files) add_file(file);
    encode_round();
    if (file_.documents() == 0) {
      throw IoError(key_name() + ": nothing to train on: " +
                        (request_.files.size() == 1
                             ? request_.files[0].path + " is"
                             : "all " + std::to_string(request_.files.size()) + " files are") +
                        " empty or without text" + (binaries_ > 0 ? "; " + a_binary_ : ""),
                    request_.files.empty() ? "" : request_.files[0].path);
    }
    tell_exceptions();
    file_.commit(key);
    log_.finish(file_.documents(), "document", file_.tokens());
  }

 private:
  void add_file(const TextFile& file) {
    const ReadResult read = read_documents(file, request_.read, [&](DocumentPiece&& piece) {
      held_bytes_ += piece.text.size();
      segments_.push_back({std::move(piece), &file, {}});
      if (held_bytes_ >= request_.read.piece_bytes * static_cast<std::size_t>(threads_) ||
          segments_.size() >= kMostSegments) {
        encode_round();
      }
    });
    if (read.documents == 0 && read.left_out.empty() && file.named) {
      throw IoError(file.key + ": " + file.path + " is empty", file.path);
    }
    if (read.json_as_text && json_as_text_++ == 0) a_json_ = file.path;
    if (read.left_out.empty()) return;
    if (binaries_++ == 0) a_binary_ = file.path + " is " + read.left_out;
    done_bytes_ += file.size_bytes;
  }

  [[nodiscard]] std::string key_name() const {
    return request_.files.empty() ? "data.text" : request_.files[0].key;
  }

  void tell_exceptions() const {
    if (binaries_ > 0) {
      log_warning(key_name() + ": left out " + counted(binaries_, "file") + " without text; " +
                  a_binary_);
    }
    if (json_as_text_ > 0) {
      log_warning(key_name() +
                  ": .json files that are not JSON lines are taken as plain text, braces "
                  "and all: " +
                  std::to_string(json_as_text_) + ", e.g. " + a_json_ +
                  "; to take each object as a document, write one a line (jq -c '.[]')");
    }
  }

  void encode(Segment& segment) const {
    try {
      const Tokenizer& tokenizer = *request_.tokenizer;
      segment.ids = segment.piece.offset > 0 ? tokenizer.encode_continued(segment.piece.text)
                                             : tokenizer.encode(segment.piece.text);
    } catch (const TokenizeError& error) {
      throw IoError(
          segment.file->key + ": " +
              place_of(*segment.file, segment.piece.line, segment.piece.offset + error.offset()) +
              ": " + error.what(),
          segment.file->path);
    }
  }

  void encode_round() {
    for_each_item(held_bytes_ < 65536 ? 1 : threads_, segments_.size(),
                  [this](std::size_t i) { encode(segments_[i]); });
    for (Segment& segment : segments_) write(segment);
    segments_.clear();
    held_bytes_ = 0;
    report();
  }

  void write(Segment& segment) {
    if (segment.piece.ends_document) segment.ids.push_back(request_.tokenizer->end_of_text());
    file_.append(segment.ids);
    if (segment.piece.ends_document) file_.end_document();
    done_bytes_ += segment.piece.file_bytes;
  }

  void report() {
    if (request_.progress) return request_.progress(done_bytes_, total_bytes_);
    log_.report(done_bytes_);
  }

  const TokenCacheRequest& request_;
  TokenCacheWriter file_;
  const int threads_;
  const std::int64_t total_bytes_;
  TokenisingLog log_;
  std::int64_t done_bytes_ = 0;
  std::vector<Segment> segments_;
  std::size_t held_bytes_ = 0;  // text of segments_
  std::int64_t binaries_ = 0, json_as_text_ = 0;
  std::string a_binary_, a_json_;  // the first of each
};

TokenCacheFile file_of(const TokenCacheRequest& request) {
  return {.folder = request.folder,
          .key = token_cache_key(request),
          .vocab = request.tokenizer->vocab_size()};
}

}  // namespace

std::uint64_t hash_of_header(const TokenCacheHeader& header) {
  return hash64(
      std::as_bytes(std::span(&header, 1)).first(offsetof(TokenCacheHeader, header_hash)));
}

std::shared_ptr<const TokenCache> TokenCacheFile::open() const {
  if (!std::filesystem::exists(path())) return nullptr;
  try {
    auto cache = std::make_shared<const TokenCache>(path());
    const TokenCacheHeader& header = cache->header();
    if (std::string_view(header.key, sizeof header.key) == key && header.vocab == vocab) {
      return whole_beside() ? cache : nullptr;
    }
    log_warning("token cache " + path() + " is another text's; tokenising again");
  } catch (const IoError& error) {
    log_warning(std::string(error.what()) + "; tokenising again");
  }
  return nullptr;
}

std::shared_ptr<const TokenCache> TokenCacheFile::open_or_build(
    const std::function<void()>& build) const {
  if (auto cache = open()) return cache;
  make_folder(folder);
  const FileLock lock(folder + "/" + key + ".lock",
                      "waiting for another process that tokenises the same text");
  if (auto cache = open()) return cache;  // built meanwhile
  if (lock.held()) AtomicFile::remove_leftovers(path());
  build();
  return std::make_shared<const TokenCache>(path());
}

void add_text_files(Hasher& hasher, const std::vector<TextFile>& files,
                    const std::string& json_key) {
  for (const TextFile& file : files) {
    add_identity(hasher, file);
    hasher.add(std::int64_t{file.named});  // a named binary is an error, a found one is left out
    if (file.format == TextFormat::kPlain && !file.path.ends_with(".gz") &&
        !file.path.ends_with(".zst")) {
      continue;
    }
    hasher.add("documents");
    hasher.add(json_key);
  }
}

std::string token_cache_key(const TokenCacheRequest& request) {
  Hasher hasher;
  hasher.add("sluice token cache");
  hasher.add(std::int64_t{kTokenCacheVersion});
  hasher.add(request.tokenizer->document_fingerprint());
  add_text_files(hasher, request.files, request.read.json_key);
  return hasher.digest_hex();
}

std::shared_ptr<const TokenCache> TokenCache::open_existing(const TokenCacheRequest& request) {
  return file_of(request).open();
}

std::shared_ptr<const TokenCache> TokenCache::open_or_build(const TokenCacheRequest& request) {
  check(request.tokenizer != nullptr && request.read.piece_bytes > 0, "TokenCache: no tokenizer");
  const TokenCacheFile file = file_of(request);
  return file.open_or_build([&] { Builder(request, file.path()).build(file.key); });
}

TokenCache::TokenCache(const std::string& path) : file_(path) {
  const auto bytes = file_.bytes();
  const auto damaged = [&](const std::string& what) {
    throw IoError("token cache " + path + " is damaged (" + what + ")", path);
  };
  if (bytes.size() < sizeof header_) damaged("shorter than its header");
  std::memcpy(&header_, bytes.data(), sizeof header_);
  if (std::string_view(header_.magic, sizeof header_.magic) != kTokenCacheMagic)
    damaged("not a token cache");
  if (header_.version != kTokenCacheVersion) {
    damaged("version " + std::to_string(header_.version) + ", this program reads " +
            std::to_string(kTokenCacheVersion));
  }
  if (header_.header_hash != hash_of_header(header_)) damaged("header checksum");
  const std::int64_t expected =
      round_up(std::int64_t{sizeof header_} + token_bytes(), 8) + 8 * (header_.documents + 1);
  if (static_cast<std::int64_t>(bytes.size()) != expected) {
    damaged(std::to_string(bytes.size()) + " bytes, its header says " + std::to_string(expected));
  }
  if (hash64(std::as_bytes(document_starts())) != header_.starts_hash) damaged("document table");
}

std::int64_t TokenCache::token_bytes() const {
  return header_.tokens * static_cast<std::int64_t>(header_.token_bytes);
}

void TokenCache::read(std::int64_t first, std::span<std::int64_t> out) const {
  check(first >= 0 && first + static_cast<std::int64_t>(out.size()) <= size(),
        "TokenCache::read outside the cache");
  const auto offset = sizeof header_ + static_cast<std::size_t>(first) * header_.token_bytes;
  widen_tokens(header_.token_bytes == 2 ? TokenType::kUInt16 : TokenType::kUInt32,
               file_.bytes().data() + offset, out);
}

std::span<const std::int64_t> TokenCache::document_starts() const {
  const std::byte* end = file_.bytes().data() + file_.bytes().size();
  const auto count = static_cast<std::size_t>(header_.documents) + 1;
  return {reinterpret_cast<const std::int64_t*>(end) - count, count};
}

void TokenCache::verify() const {
  const auto tokens =
      file_.bytes().subspan(sizeof header_, static_cast<std::size_t>(token_bytes()));
  if (hash64(tokens) != header_.tokens_hash) {
    throw IoError("token cache " + path() + " is damaged (its tokens); remove it to tokenise again",
                  path());
  }
}

}  // namespace sluice
