#include "runtime/data/prepare/indexed_tools.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/posix/map.hpp"
#include "runtime/data/file_io.hpp"
#include "runtime/data/prepare/indexed_file.hpp"
#include "runtime/data/prepare/indexed_writer.hpp"
#include "runtime/data/sample_order.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kReportEvery = 1 << 16;  // documents
constexpr std::int64_t kMostBuckets = 256;      // files that are open at once

void check_output(const std::string& command, const std::string& prefix) {
  make_parent_folder(prefix);
  check_new_pair(command, prefix);
}

// Of `file`, `done` of `total` documents of the command are read.
void report(const DocumentProgress& progress, const IndexedFile& file, std::int64_t done,
            std::int64_t total) {
  if (done % kReportEvery == 0) file.let_go_pages();
  if (progress && (done % kReportEvery == 0 || done == total)) progress(done, total);
}

}  // namespace

std::int64_t merge_indexed(const std::vector<std::string>& inputs, const std::string& output,
                           const DocumentProgress& progress) {
  check(!inputs.empty(), "merge_indexed of nothing");
  check_output("merge", output);
  const TokenType type = IndexedFile(inputs[0]).type();
  std::int64_t total = 0;
  for (const std::string& input : inputs) {
    const IndexedFile file(input);
    total += file.documents();
    if (file.type() == type) continue;
    throw ConfigError("data merge: the tokens of " + input + " have " +
                      std::to_string(size_of(file.type())) + " bytes, those of " + inputs[0] +
                      " have " + std::to_string(size_of(type)) +
                      ", or another sign; prepare both with one tokenizer");
  }
  IndexedWriter writer(output, type);
  IndexedFile::Document document;
  std::int64_t done = 0;
  for (const std::string& input : inputs) {
    const IndexedFile file(input);
    for (std::int64_t d = 0; d < file.documents(); ++d) {
      file.read(d, document);
      append_document(document, writer);
      report(progress, file, ++done, total);
    }
  }
  writer.finish();
  return total;
}

std::vector<std::int64_t> split_indexed(const IndexedSplit& split,
                                        const DocumentProgress& progress) {
  constexpr std::array<const char*, 3> kNames{"_train", "_valid", "_test"};
  const double sum = std::accumulate(split.shares.begin(), split.shares.end(), 0.0);
  const bool below = std::any_of(split.shares.begin(), split.shares.end(),
                                 [](double share) { return !(share >= 0); });
  if (split.shares.empty() || split.shares.size() > 3 || below || !(sum > 0) ||
      !std::isfinite(sum)) {
    throw ConfigError(
        "data split: expected one to three shares, of training, validation and test, none below 0 "
        "and not all 0");
  }
  const IndexedFile file(split.input);
  std::vector<std::int64_t> ends, counts(split.shares.size());
  double before = 0;
  for (const double share : split.shares) {
    before += share;
    ends.push_back(std::llround(static_cast<double>(file.documents()) * (before / sum)));
  }
  std::vector<std::unique_ptr<IndexedWriter>> writers;
  for (std::size_t p = 0; p < ends.size(); ++p) {
    check_output("split", split.output + kNames[p]);
    const bool used = ends[p] > (p == 0 ? 0 : ends[p - 1]);
    writers.push_back(used ? std::make_unique<IndexedWriter>(split.output + kNames[p], file.type())
                           : nullptr);
  }
  const SampleOrder order(file.documents(), split.seed);
  IndexedFile::Document document;
  for (std::int64_t d = 0; d < file.documents(); ++d) {
    const auto part = static_cast<std::size_t>(
        std::upper_bound(ends.begin(), ends.end(), order.at(0, d)) - ends.begin());
    file.read(d, document);
    append_document(document, *writers[part]);
    ++counts[part];
    report(progress, file, d + 1, file.documents());
  }
  for (const auto& writer : writers) {
    if (writer) writer->finish();
  }
  return counts;
}

namespace {

// A document on its way to its new place.
struct Moved {
  std::int64_t place = 0;
  std::vector<std::int32_t> lengths;
  std::vector<std::byte> tokens;
};

// One temporary file: the documents whose new places are in one range. Removed at the end.
class Bucket {
 public:
  explicit Bucket(std::string path)
      : path_(std::move(path)), out_(path_, std::ios::binary | std::ios::trunc) {
    if (!out_) throw IoError("cannot create " + path_, path_);
  }
  ~Bucket() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  Bucket(const Bucket&) = delete;
  Bucket& operator=(const Bucket&) = delete;

  void add(std::int64_t place, const IndexedFile::Document& document) {
    const auto sequences = static_cast<std::int64_t>(document.lengths.size());
    put(std::as_bytes(std::span(&place, 1)));
    put(std::as_bytes(std::span(&sequences, 1)));
    put(std::as_bytes(std::span(document.lengths)));
    for (const auto& tokens : document.tokens) put(tokens);
  }

  // All documents by their places.
  std::vector<Moved> take(std::int64_t token_bytes) {
    out_.close();
    if (!out_) throw IoError("cannot write " + path_ + "; free space on its drive", path_);
    std::ifstream in(path_, std::ios::binary);
    std::vector<Moved> documents;
    std::int64_t sequences = 0;
    for (Moved moved; get(in, std::as_writable_bytes(std::span(&moved.place, 1)));) {
      get(in, std::as_writable_bytes(std::span(&sequences, 1)));
      moved.lengths.resize(static_cast<std::size_t>(sequences));
      get(in, std::as_writable_bytes(std::span(moved.lengths)));
      const std::int64_t tokens =
          std::accumulate(moved.lengths.begin(), moved.lengths.end(), std::int64_t{0});
      moved.tokens.resize(static_cast<std::size_t>(tokens * token_bytes));
      get(in, moved.tokens);
      if (!in) throw IoError("cannot read " + path_ + " to its end", path_);
      documents.push_back(std::move(moved));
      moved = {};
    }
    std::sort(documents.begin(), documents.end(),
              [](const Moved& a, const Moved& b) { return a.place < b.place; });
    return documents;
  }

 private:
  void put(std::span<const std::byte> bytes) {
    out_.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    if (!out_) throw IoError("cannot write " + path_ + "; free space on its drive", path_);
  }
  static bool get(std::ifstream& in, std::span<std::byte> bytes) {
    in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return static_cast<bool>(in);
  }

  std::string path_;
  std::ofstream out_;
};

}  // namespace

std::int64_t shuffle_indexed(const IndexedShuffle& shuffle, const DocumentProgress& progress) {
  check(shuffle.memory_bytes > 0, "shuffle_indexed without memory");
  check_output("shuffle", shuffle.output);
  const IndexedFile file(shuffle.input);
  const std::int64_t documents = file.documents();
  const std::int64_t buckets =
      std::clamp<std::int64_t>((file.bin_bytes() - 1) / shuffle.memory_bytes + 1, 1,
                               std::min(kMostBuckets, std::max<std::int64_t>(documents, 1)));
  const std::int64_t of_bucket = (documents + buckets - 1) / buckets;
  std::vector<std::unique_ptr<Bucket>> places;
  for (std::int64_t b = 0; b < buckets; ++b) {
    const std::string path = shuffle.output + ".bucket" + std::to_string(b) + ".part";
    places.push_back(std::make_unique<Bucket>(path));
  }
  const SampleOrder order(documents, shuffle.seed);
  IndexedFile::Document document;
  for (std::int64_t d = 0; d < documents; ++d) {
    const std::int64_t place = order.at(0, d);
    file.read(d, document);
    places[static_cast<std::size_t>(place / of_bucket)]->add(place, document);
    report(progress, file, d + 1, 2 * documents);
  }
  IndexedWriter writer(shuffle.output, file.type());
  std::int64_t done = documents;
  for (std::unique_ptr<Bucket>& bucket : places) {
    for (const Moved& moved : bucket->take(size_of(file.type()))) {
      writer.append(moved.tokens);
      writer.end_document(moved.lengths);
      report(progress, file, ++done, 2 * documents);
    }
    bucket.reset();
  }
  writer.finish();
  return documents;
}

}  // namespace sluice
