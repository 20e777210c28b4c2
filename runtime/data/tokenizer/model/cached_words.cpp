#include "runtime/data/tokenizer/model/cached_words.hpp"

#include <array>
#include <atomic>

#include "runtime/data/tokenizer/model/word_cache.hpp"

namespace sluice {
namespace {

using Ids = std::vector<std::int32_t>;
using ShortWords = WordCache<2, 3, 1U << 17U>;  // 4 MiB: 32 bytes a word
using LongWords = WordCache<4, 7, 1U << 15U>;   // 2 MiB: 64 bytes a word

struct ThreadCaches {
  ShortWords short_words;
  LongWords long_words;
  SpilledIds spilled;
  Ids merged;

  // A full store of spilled ids begins again, and with it the tables.
  void make_room(std::size_t ids) {
    if (spilled.has_room(ids)) return;
    short_words.forget();
    long_words.forget();
    spilled.clear();
  }
};

ThreadCaches& caches_of_thread(std::uint64_t owner) {
  thread_local ThreadCaches caches;
  caches.short_words.use_for(owner);
  if (caches.long_words.use_for(owner)) caches.spilled.clear();
  return caches;
}

}  // namespace

// Collects ids on the stack, because an append to a vector costs as much as a cached word.
class CachedWords::Sink {
 public:
  static constexpr std::size_t kIds = 1024, kRoom = 8;
  Sink(Ids& out, ThreadCaches& caches) : caches(caches), out_(out) {}
  ~Sink() { flush(); }
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  void flush() {
    out_.insert(out_.end(), ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(count_));
    count_ = 0;
  }
  void append(std::span<const std::int32_t> ids) {
    if (count_ + ids.size() > kIds) flush();
    if (ids.size() > kIds) {
      out_.insert(out_.end(), ids.begin(), ids.end());
      return;
    }
    std::copy(ids.begin(), ids.end(), ids_.begin() + static_cast<std::ptrdiff_t>(count_));
    count_ += ids.size();
  }
  // Copies all of the slot's ids, of which `count` are meant.
  template <std::size_t kMost>
  void append(const std::int32_t (&ids)[kMost], std::uint32_t count) {
    static_assert(kMost <= kRoom);
    if (count_ > kIds - kRoom) flush();
    std::memcpy(ids_.data() + count_, ids, sizeof ids);
    count_ += count;
  }
  void append(std::int32_t id) {
    if (count_ == kIds) flush();
    ids_[count_++] = id;
  }

  ThreadCaches& caches;

 private:
  Ids& out_;
  std::size_t count_ = 0;
  std::array<std::int32_t, kIds> ids_;
};

CachedWords::CachedWords() {
  static std::atomic<std::uint64_t> next_serial{1};
  serial_ = next_serial++;
}

// Words pass in batches: the slots of a batch are on their way from memory together.
class CachedWords::Batch {
 public:
  Batch(const CachedWords& words, Sink& sink, const char* readable)
      : words_(words), sink_(sink), readable_(readable) {}

  void add(std::string_view word) {
    Entry& entry = entries_[count_++];
    entry.word = word;
    if (word.size() <= ShortWords::kMostBytes) {
      entry.key = ShortWords::key_of(word, readable_);
      entry.pair = sink_.caches.short_words.pair_of(entry.key);
    }
    if (count_ == kWords) flush();
  }

  void flush() {
    for (std::size_t i = 0; i < count_; ++i) {
      const Entry& entry = entries_[i];
      if (entry.word.size() > ShortWords::kMostBytes) {
        encode_long(entry.word);
      } else {
        encode_in<ShortWords>(entry.word, entry.key, entry.pair);
      }
    }
    count_ = 0;
  }

 private:
  struct Entry {
    std::string_view word;
    ShortWords::Key key;
    ShortWords::Slot* pair;
  };
  static constexpr std::size_t kWords = 32;

  template <typename Cache>
  void encode_in(std::string_view word, const typename Cache::Key& key,
                 typename Cache::Slot* pair) {
    ThreadCaches& caches = sink_.caches;
    if (const auto* slot = Cache::find(pair, key)) {
      if (Cache::fits(slot->count)) return sink_.append(slot->ids, slot->count);
      return sink_.append(caches.spilled.at(slot->ids[0], slot->count));
    }
    words_.encode_word(word, caches.merged);
    caches.make_room(caches.merged.size());
    Cache::add(pair, key, caches.merged, caches.spilled);
    sink_.append(caches.merged);
  }

  void encode_long(std::string_view word) {
    if (word.size() <= LongWords::kMostBytes) {
      const LongWords::Key key = LongWords::key_of(word, readable_);
      return encode_in<LongWords>(word, key, sink_.caches.long_words.pair_of(key));
    }
    words_.encode_word(word, sink_.caches.merged);
    sink_.append(sink_.caches.merged);
  }

  const CachedWords& words_;
  Sink& sink_;
  const char* readable_;
  std::size_t count_ = 0;
  std::array<Entry, kWords> entries_;
};

void CachedWords::encode_text(std::string_view text, WordRule rule, Ids& out) const {
  Sink sink(out, caches_of_thread(serial_));
  Batch batch(*this, sink, text.data() + text.size());
  for_each_word(rule, text, [&](std::string_view word) { batch.add(word); });
  batch.flush();
}

void CachedWords::encode(std::string_view word, Ids& out) const {
  Sink sink(out, caches_of_thread(serial_));
  Batch batch(*this, sink, word.data() + word.size());
  batch.add(word);
  batch.flush();
}

}  // namespace sluice
