#include "runtime/data/token_cache.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/posix/atomic_file.hpp"
#include "runtime/data/file_io.hpp"
#include "runtime/data/hash.hpp"

namespace sluice {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "SLUICETK";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kMostSegments =
    4096;  // of one round, so that many small files are few rounds

std::uint64_t hash_of_header(const TokenCacheHeader& header) {
  return hash64(
      std::as_bytes(std::span(&header, 1)).first(offsetof(TokenCacheHeader, header_hash)));
}

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
        file_(path),
        wide_(request.tokenizer->vocab_size() > 65536),
        threads_(request.threads > 0
                     ? request.threads
                     : std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 16)) {
    for (const TextFile& file : request.files) total_bytes_ += file.size_bytes;
  }

  void build(const std::string& key) {
    const TokenCacheHeader blank{};
    file_.append(std::as_bytes(std::span(&blank, 1)));
    for (const TextFile& file : request_.files) add_file(file);
    encode_round();
    if (starts_.size() == 1) {
      throw IoError("data.text: nothing to train on: all " + std::to_string(request_.files.size()) +
                        " files are empty or binary" + (binaries_ > 0 ? "; " + a_binary_ : ""),
                    request_.files.empty() ? "" : request_.files[0].path);
    }
    tell_exceptions();
    finish(key);
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
      throw IoError("data.text: " + file.path + " is empty", file.path);
    }
    if (read.json_as_text && json_as_text_++ == 0) a_json_ = file.path;
    if (read.left_out.empty()) return;
    if (binaries_++ == 0) a_binary_ = file.path + " is " + read.left_out;
    done_bytes_ += file.size_bytes;
  }

  void tell_exceptions() const {
    if (binaries_ > 0) {
      log_warning("data.text: left out " + std::to_string(binaries_) + " binary files; " +
                  a_binary_);
    }
    if (json_as_text_ > 0) {
      log_warning(
          "data.text: .json files that are not JSON lines are taken as plain text, braces "
          "and all: " +
          std::to_string(json_as_text_) + ", e.g. " + a_json_ +
          "; to take each object as a document, write one a line (jq -c '.[]')");
    }
  }

  void encode(Segment& segment) const {
    try {
      segment.ids = request_.tokenizer->encode(segment.piece.text);
    } catch (const TokenizeError& error) {
      throw IoError(
          "data.text: " +
              place_of(*segment.file, segment.piece.line, segment.piece.offset + error.offset()) +
              ": " + error.what(),
          segment.file->path);
    }
  }

  void encode_round() {
    std::atomic<std::size_t> next{0};
    std::mutex mutex;
    std::exception_ptr first_error;
    const auto work = [&] {
      try {
        for (std::size_t i; (i = next++) < segments_.size();) {
          encode(segments_[i]);
        }
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first_error) first_error = std::current_exception();
        next = segments_.size();
      }
    };
    {
      std::vector<std::jthread> helpers;
      const std::size_t wanted = std::min<std::size_t>(static_cast<std::size_t>(threads_),
                                                       held_bytes_ < 65536 ? 1 : segments_.size());
      for (std::size_t t = 1; t < wanted; ++t) helpers.emplace_back(work);
      work();
    }
    if (first_error) std::rethrow_exception(first_error);
    for (Segment& segment : segments_) write(segment);
    segments_.clear();
    held_bytes_ = 0;
    report();
  }

  void write(Segment& segment) {
    if (segment.piece.ends_document) segment.ids.push_back(request_.tokenizer->end_of_text());
    if (wide_) {
      put(std::as_bytes(std::span(segment.ids)));
    } else {
      const std::vector<std::uint16_t> narrow(segment.ids.begin(), segment.ids.end());
      put(std::as_bytes(std::span(narrow)));
    }
    tokens_ += static_cast<std::int64_t>(segment.ids.size());
    if (segment.piece.ends_document) starts_.push_back(tokens_);
    done_bytes_ += segment.piece.file_bytes;
  }

  void put(std::span<const std::byte> bytes) {
    hasher_.add_bytes(bytes);
    file_.append(bytes);
  }

  void report() {
    if (request_.progress) return request_.progress(done_bytes_, total_bytes_);
    const auto now = std::chrono::steady_clock::now();
    if (now - reported_ < std::chrono::seconds(10)) return;
    reported_ = now;
    const double seconds = std::chrono::duration<double>(now - started_).count();
    const double rate = static_cast<double>(done_bytes_) / seconds;
    log_info(
        "tokenising: " + format_bytes(done_bytes_) + " of " + format_bytes(total_bytes_) + ", " +
        format_bytes(static_cast<std::int64_t>(rate)) + "/s, eta " +
        format_duration(static_cast<double>(total_bytes_ - done_bytes_) / std::max(rate, 1.0)));
  }

  void finish(const std::string& key) {
    const std::int64_t padding = round_up(file_.size(), 8) - file_.size();
    file_.append(std::string_view("\0\0\0\0\0\0\0", static_cast<std::size_t>(padding)));
    const auto starts = std::as_bytes(std::span(starts_));
    file_.append(starts);
    TokenCacheHeader header{};
    std::memcpy(header.magic, kMagic.data(), sizeof header.magic);
    header.version = kVersion;
    header.token_bytes = wide_ ? 4 : 2;
    header.vocab = request_.tokenizer->vocab_size();
    header.tokens = tokens_;
    header.documents = static_cast<std::int64_t>(starts_.size()) - 1;
    header.tokens_hash = hasher_.digest64();
    header.starts_hash = hash64(starts);
    std::memcpy(header.key, key.data(), sizeof header.key);
    header.header_hash = hash_of_header(header);
    file_.overwrite(0, std::as_bytes(std::span(&header, 1)));
    file_.commit();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
    log_info("tokenised " + format_bytes(total_bytes_) + " in " + std::to_string(header.documents) +
             " documents into " + format_count(static_cast<double>(tokens_)) + " tokens, " +
             format_duration(seconds));
  }

  const TokenCacheRequest& request_;
  AtomicFile file_;
  const bool wide_;
  const int threads_;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point reported_ = started_;
  std::int64_t total_bytes_ = 0, done_bytes_ = 0;
  std::vector<Segment> segments_;
  std::size_t held_bytes_ = 0;  // text of segments_
  std::int64_t tokens_ = 0;
  std::vector<std::int64_t> starts_{0};
  Hasher hasher_;
  std::int64_t binaries_ = 0, json_as_text_ = 0;
  std::string a_binary_, a_json_;  // the first of each
};

std::string path_of(const TokenCacheRequest& request, const std::string& key) {
  return request.folder + "/" + key + ".tokens";
}

// The cache at `path` if it is whole, is this key's and fits the tokenizer; else nothing.
std::shared_ptr<const TokenCache> open_if_whole(const std::string& path, const std::string& key,
                                                const Tokenizer& tokenizer) {
  if (!std::filesystem::exists(path)) return nullptr;
  try {
    auto cache = std::make_shared<const TokenCache>(path);
    if (std::string_view(cache->header().key, sizeof cache->header().key) == key &&
        cache->header().vocab == tokenizer.vocab_size()) {
      return cache;
    }
    log_warning("token cache " + path + " is another text's; tokenising again");
  } catch (const IoError& error) {
    log_warning(std::string(error.what()) + "; tokenising again");
  }
  return nullptr;
}

}  // namespace

std::string token_cache_key(const TokenCacheRequest& request) {
  Hasher hasher;
  hasher.add("sluice token cache");
  hasher.add(std::int64_t{kVersion});
  hasher.add(request.tokenizer->fingerprint());
  for (const TextFile& file : request.files) {
    hasher.add(file.path);
    hasher.add(file.size_bytes);
    hasher.add(file.modified_ns);
    hasher.add(std::int64_t{file.named});  // a named binary is an error, a found one is left out
    if (file.format == TextFormat::kPlain && !file.path.ends_with(".gz")) continue;
    hasher.add("documents");
    hasher.add(request.read.json_key);
  }
  return hasher.digest_hex();
}

std::shared_ptr<const TokenCache> TokenCache::open_existing(const TokenCacheRequest& request) {
  const std::string key = token_cache_key(request);
  return open_if_whole(path_of(request, key), key, *request.tokenizer);
}

std::shared_ptr<const TokenCache> TokenCache::open_or_build(const TokenCacheRequest& request) {
  check(request.tokenizer != nullptr && request.read.piece_bytes > 0, "TokenCache: no tokenizer");
  const std::string key = token_cache_key(request);
  const std::string path = path_of(request, key);
  if (auto cache = open_if_whole(path, key, *request.tokenizer)) return cache;
  make_folder(request.folder);
  const FileLock lock(request.folder + "/" + key + ".lock",
                      "waiting for another process that tokenises the same text");
  if (auto cache = open_if_whole(path, key, *request.tokenizer)) return cache;  // built meanwhile
  if (lock.held()) AtomicFile::remove_leftovers(path);
  Builder(request, path).build(key);
  return std::make_shared<const TokenCache>(path);
}

TokenCache::TokenCache(const std::string& path) : file_(path) {
  const auto bytes = file_.bytes();
  const auto damaged = [&](const std::string& what) {
    throw IoError("token cache " + path + " is damaged (" + what + ")", path);
  };
  if (bytes.size() < sizeof header_) damaged("shorter than its header");
  std::memcpy(&header_, bytes.data(), sizeof header_);
  if (std::string_view(header_.magic, sizeof header_.magic) != kMagic) damaged("not a token cache");
  if (header_.version != kVersion) {
    damaged("version " + std::to_string(header_.version) + ", this program reads " +
            std::to_string(kVersion));
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
