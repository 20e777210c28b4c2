#include "runtime/data/stats/data_stats.hpp"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/index.hpp"
#include "base/log.hpp"
#include "runtime/data/document_reader.hpp"
#include "runtime/data/indexed_dataset.hpp"
#include "runtime/data/parallel_items.hpp"
#include "runtime/data/prepare/indexed_file.hpp"
#include "runtime/data/text_files.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kMostPairIds = 1 << 24;  // of a pair without a tokenizer; 128 MiB of counts
constexpr std::int64_t kStretch = 1 << 16;      // tokens that are widened at a time
constexpr std::int64_t kHeldBytes = 64 << 20;   // of a mapped file
constexpr std::size_t kMostSegmentsOfRound =
    4096;  // of one round, so that small files are few rounds
constexpr const char* kCommand = "data stats";

class Measure {
 public:
  explicit Measure(const StatsOptions& options)
      : options_(options), threads_(threads_or_default(options.threads)) {
    const Tokenizer* tokenizer = options.tokenizer;
    stats_.with_tokenizer = tokenizer != nullptr;
    if (tokenizer != nullptr) stats_.vocab = tokenizer->vocab_size();
    if (tokenizer != nullptr) stats_.counts.resize(static_cast<std::size_t>(stats_.vocab));
  }

  DataStats run() {
    std::vector<std::string> text;
    for (const std::string& input : options_.inputs) {
      if (is_indexed_pair(input)) {
        add_pair(input);
      } else {
        text.push_back(input);
      }
    }
    if (!text.empty()) add_text(text);
    if (stats_.lengths.documents() == 0) {
      throw IoError("data stats: no document in " + options_.inputs.front() +
                        (options_.inputs.size() > 1 ? " and the other inputs" : ""),
                    options_.inputs.front());
    }
    count_kinds();
    return std::move(stats_);
  }

 private:
  struct Segment {
    DocumentPiece piece;
    const TextFile* file = nullptr;
    std::vector<std::int32_t> ids{};
  };

  void add_pair(const std::string& input) {
    ++stats_.pairs;
    const IndexedFile file(input);
    IndexedFile::Document document;
    std::vector<std::int64_t> wide;
    std::int64_t read_bytes = 0;
    for (std::int64_t d = 0; d < file.documents(); ++d) {
      file.read(d, document);
      std::int64_t length = 0;
      for (std::size_t s = 0; s < document.lengths.size(); ++s) {
        add_stored(file.type(), document.lengths[s], document.tokens[s], wide);
        length += document.lengths[s];
      }
      stats_.lengths.add(length);
      read_bytes += length * size_of(file.type());
      if (read_bytes < kHeldBytes) continue;
      file.let_go_pages();
      read_bytes = 0;
    }
  }

  void add_stored(TokenType type, std::int64_t count, std::span<const std::byte> tokens,
                  std::vector<std::int64_t>& wide) {
    for (std::int64_t done = 0; done < count;) {
      wide.resize(static_cast<std::size_t>(std::min(kStretch, count - done)));
      widen_tokens(type, tokens.data() + done * size_of(type), wide);
      for (const std::int64_t token : wide) add_token(token);
      done += std::ssize(wide);
    }
  }

  void add_token(std::int64_t token) {
    const std::int64_t end = stats_.with_tokenizer ? stats_.vocab : kMostPairIds;
    if (token < 0 || token >= end) {
      ++stats_.outside;
      return;
    }
    const auto id = static_cast<std::size_t>(token);
    if (id >= stats_.counts.size()) stats_.counts.resize(id + 1);
    ++stats_.counts[id];
  }

  void add_text(const std::vector<std::string>& specs) {
    if (options_.tokenizer == nullptr) {
      throw ConfigError("data stats: " + specs.front() +
                        " is text, whose tokens need a tokenizer; give --tokenizer");
    }
    const std::vector<TextFile> files = find_text_files(specs, kCommand);
    for (const TextFile& file : files) {
      ++stats_.files;
      const ReadResult read =
          read_documents(file, {.piece_bytes = options_.piece_bytes, .json_key = options_.json_key},
                         [&](DocumentPiece&& piece) { add_piece(file, std::move(piece)); });
      if (read.left_out.empty()) continue;
      ++stats_.left_out;
      log_warning("data stats: left out " + file.path + ": " + read.left_out);
    }
    finish_round();
  }

  void add_piece(const TextFile& file, DocumentPiece&& piece) {
    held_bytes_ += piece.text.size();
    round_.push_back({std::move(piece), &file});
    const std::size_t most = options_.piece_bytes * static_cast<std::size_t>(threads_);
    if (held_bytes_ >= most || round_.size() >= kMostSegmentsOfRound) finish_round();
  }

  void encode(Segment& segment) const {
    const DocumentPiece& piece = segment.piece;
    try {
      segment.ids = piece.offset > 0 ? options_.tokenizer->encode_continued(piece.text)
                                     : options_.tokenizer->encode(piece.text);
    } catch (const TokenizeError& error) {
      throw IoError(
          "data stats: " + place_of(*segment.file, piece.line, piece.offset + error.offset()) +
              ": " + error.what(),
          segment.file->path);
    }
  }

  void finish_round() {
    for_each_item(threads_, round_.size(), [this](std::size_t i) { encode(round_[i]); });
    for (const Segment& segment : round_) {
      for (const std::int32_t id : segment.ids) add_token(id);
      stats_.text_bytes += static_cast<std::int64_t>(segment.piece.text.size());
      stats_.text_tokens += std::ssize(segment.ids);
      open_tokens_ += std::ssize(segment.ids);
      if (segment.piece.ends_document) stats_.lengths.add(std::exchange(open_tokens_, 0));
    }
    round_.clear();
    held_bytes_ = 0;
  }

  void count_kinds() {
    if (!stats_.with_tokenizer) return;
    const Tokenizer& tokenizer = *options_.tokenizer;
    for (std::size_t id = 0; id < stats_.counts.size(); ++id) {
      const TokenKind kind = tokenizer.kind(static_cast<std::int32_t>(id));
      if (kind == TokenKind::kUnknown) stats_.unknown += stats_.counts[id];
      if (kind == TokenKind::kByte) stats_.bytes += stats_.counts[id];
    }
    stats_.end_of_text = nth(stats_.counts, tokenizer.end_of_text());
  }

  const StatsOptions& options_;
  const int threads_;
  DataStats stats_;
  std::vector<Segment> round_;
  std::size_t held_bytes_ = 0;    // text of round_
  std::int64_t open_tokens_ = 0;  // of the document that has not ended
};

}  // namespace

std::int64_t DataStats::distinct() const {
  return std::count_if(counts.begin(), counts.end(), [](std::int64_t n) { return n > 0; });
}

std::vector<std::int32_t> DataStats::most_frequent(std::int64_t most) const {
  std::vector<std::int32_t> ids(counts.size());
  std::iota(ids.begin(), ids.end(), 0);
  const std::int64_t kept = std::min(most, distinct());
  std::partial_sort(ids.begin(), ids.begin() + kept, ids.end(),
                    [&](std::int32_t a, std::int32_t b) {
                      const std::int64_t of_a = nth(counts, a), of_b = nth(counts, b);
                      return of_a != of_b ? of_a > of_b : a < b;
                    });
  ids.resize(static_cast<std::size_t>(kept));
  return ids;
}

bool is_indexed_pair(const std::string& input) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(without_ending(input) + ".idx", ignored);
}

DataStats measure_data(const StatsOptions& options) {
  check(!options.inputs.empty() && options.piece_bytes > 0, "measure_data without inputs");
  return Measure(options).run();
}

}  // namespace sluice
