#include "runtime/data/tokenizer/train_bpe.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <queue>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/index.hpp"
#include "base/log.hpp"
#include "runtime/data/document_reader.hpp"
#include "runtime/data/text_files.hpp"
#include "runtime/data/tokenizer/bpe_files.hpp"
#include "runtime/data/tokenizer/split_pattern.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

using Id = std::int32_t;

struct Word {
  std::vector<Id> ids;
  std::int64_t count;
};

std::uint64_t key_of(Id left, Id right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32U | static_cast<std::uint32_t>(right);
}

// Ids of the bytes as GPT-2 numbers them: in the order of its alphabet.
std::vector<std::string> byte_pieces() {
  std::vector<std::string> pieces;
  for (unsigned byte = 0; byte < 256; ++byte) pieces.emplace_back(1, static_cast<char>(byte));
  std::sort(pieces.begin(), pieces.end(), [](const std::string& a, const std::string& b) {
    return alphabet_of_byte(static_cast<std::uint8_t>(a[0])) <
           alphabet_of_byte(static_cast<std::uint8_t>(b[0]));
  });
  return pieces;
}

std::unordered_map<std::string, std::int64_t> count_words(const BpeTrainOptions& options) {
  std::unordered_map<std::string, std::int64_t> counts;
  const SplitPattern pattern(kGpt2Pattern);
  std::vector<std::string_view> words;
  std::string key;
  for (const TextFile& file : find_text_files(options.text)) {
    const ReadOptions read{.piece_bytes = 4U << 20U, .json_key = options.json_key};
    (void)read_documents(file, read, [&](DocumentPiece&& piece) {
      std::string_view rest = piece.text;
      while (!rest.empty()) {
        const std::size_t valid = valid_utf8_prefix(rest);
        words.clear();
        pattern.split(rest.substr(0, valid), words);
        for (const std::string_view word : words) ++counts[key.assign(word)];
        rest.remove_prefix(std::min(valid + 1, rest.size()));  // an invalid byte teaches nothing
      }
    });
  }
  return counts;
}

class Trainer {
 public:
  explicit Trainer(const std::unordered_map<std::string, std::int64_t>& counts)
      : pieces_(byte_pieces()) {
    std::vector<Id> id_of_byte(256);
    for (std::size_t id = 0; id < 256; ++id) {
      id_of_byte[static_cast<std::uint8_t>(pieces_[id][0])] = static_cast<Id>(id);
    }
    for (const auto& [text, count] : counts) {
      Word word{{}, count};
      for (const char byte : text) word.ids.push_back(id_of_byte[static_cast<std::uint8_t>(byte)]);
      for (std::size_t i = 0; i + 1 < word.ids.size(); ++i) {
        add(word.ids[i], word.ids[i + 1], count, words_.size());
      }
      words_.push_back(std::move(word));
    }
    for (const auto& [key, pair] : pairs_) queue_.push({pair.count, key});
  }

  // Merges until `vocab_size` pieces exist (end-of-text apart) or no pair is left.
  void run(std::int64_t vocab_size, std::int64_t min_count) {
    auto told = std::chrono::steady_clock::now();
    while (static_cast<std::int64_t>(pieces_.size()) < vocab_size && !queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      const std::int64_t count = pairs_.at(best.key).count;
      if (count != best.count) {  // it fell since it was queued; rises queue anew
        if (count > 0 && count < best.count) queue_.push({count, best.key});
        continue;
      }
      if (count < min_count) break;
      merge(best.key);
      if (std::chrono::steady_clock::now() - told < std::chrono::seconds(10)) continue;
      told = std::chrono::steady_clock::now();
      log_info("training the tokenizer: " + std::to_string(pieces_.size()) + " of " +
               std::to_string(vocab_size) + " pieces");
    }
  }

  std::vector<std::string> pieces_;
  std::vector<std::pair<Id, Id>> merges_;

 private:
  struct Pair {
    std::int64_t count = 0;
    std::vector<std::size_t> words;  // where it came; some twice, some no longer
  };
  struct Candidate {
    std::int64_t count;
    std::uint64_t key;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : key > other.key;
    }
  };

  void add(Id left, Id right, std::int64_t count, std::size_t word) {
    Pair& pair = pairs_[key_of(left, right)];
    pair.count += count;
    if (count > 0 && (pair.words.empty() || pair.words.back() != word)) pair.words.push_back(word);
  }

  void merge(std::uint64_t key) {
    const auto left = static_cast<Id>(key >> 32U), right = static_cast<Id>(key & 0xFFFFFFFFU);
    const auto made = static_cast<Id>(pieces_.size());
    pieces_.push_back(nth(pieces_, left) + nth(pieces_, right));
    merges_.emplace_back(left, right);
    std::vector<std::size_t> touched = std::move(pairs_.at(key).words);
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    grown_.clear();
    for (const std::size_t index : touched) merge_in(index, left, right, made);
    pairs_.at(key) = {};
    std::sort(grown_.begin(), grown_.end());
    grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
    for (const std::uint64_t pair : grown_) queue_.push({pairs_.at(pair).count, pair});
  }

  // Only pairs with the new piece become more frequent; pairs with its parts become rarer.
  void merge_in(std::size_t index, Id left, Id right, Id made) {
    Word& word = words_[index];
    std::vector<Id> merged;
    for (std::size_t i = 0; i < word.ids.size(); ++i) {
      const bool here = i + 1 < word.ids.size() && word.ids[i] == left && word.ids[i + 1] == right;
      merged.push_back(here ? made : word.ids[i]);
      if (here) ++i;
    }
    if (merged.size() == word.ids.size()) return;
    for (std::size_t i = 0; i + 1 < word.ids.size(); ++i) {
      add(word.ids[i], word.ids[i + 1], -word.count, index);
    }
    for (std::size_t i = 0; i + 1 < merged.size(); ++i) {
      add(merged[i], merged[i + 1], word.count, index);
      if (merged[i] == made || merged[i + 1] == made)
        grown_.push_back(key_of(merged[i], merged[i + 1]));
    }
    word.ids = std::move(merged);
  }

  std::vector<Word> words_;
  std::unordered_map<std::uint64_t, Pair> pairs_;
  std::priority_queue<Candidate> queue_;
  std::vector<std::uint64_t> grown_;
};

[[noreturn]] void refuse_no_words(const std::vector<std::string>& text) {
  const std::string first = text.empty() ? "" : text[0];
  throw IoError("no tokenizer can be learned from " + first +
                    (text.size() > 1 ? " and the other files" : "") +
                    ": all are empty or without text; give files with text",
                first);
}

}  // namespace

BpeTrainResult train_bpe(const BpeTrainOptions& options) {
  if (options.vocab_size < 257 || options.vocab_size > kMostIds) {
    throw ConfigError("tokenizer train: a vocabulary of " + std::to_string(options.vocab_size) +
                      "; expected 257 (256 bytes and end-of-text) to " + std::to_string(kMostIds));
  }
  for (const char* name : {"vocab.json", "merges.txt", "tokenizer.json"}) {
    const std::filesystem::path path = std::filesystem::path(options.out_dir) / name;
    std::error_code ignored;
    if (!std::filesystem::exists(std::filesystem::symlink_status(path, ignored))) continue;
    throw ConfigError("tokenizer train: " + path.string() +
                      " is there already, and a model may need that tokenizer; give another "
                      "folder with -o, or remove the old one");
  }
  const auto counts = count_words(options);
  if (counts.empty()) refuse_no_words(options.text);
  Trainer trainer(counts);
  trainer.run(options.vocab_size - 1, std::max<std::int64_t>(options.min_count, 1));
  trainer.pieces_.emplace_back(kEndOfTextName);
  write_gpt2_files(options.out_dir, trainer.pieces_, trainer.merges_);
  BpeTrainResult result{static_cast<std::int64_t>(trainer.pieces_.size()),
                        static_cast<std::int64_t>(trainer.merges_.size()),
                        static_cast<std::int64_t>(counts.size())};
  if (result.vocab_size < options.vocab_size) {
    log_warning("tokenizer train: the text has pairs for " + std::to_string(result.vocab_size) +
                " pieces only, not " + std::to_string(options.vocab_size));
  }
  return result;
}

}  // namespace sluice
