#include "runtime/data/training_data.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/log.hpp"
#include "base/posix/atomic_file.hpp"
#include "runtime/data/file_io.hpp"
#include "runtime/data/hash.hpp"
#include "runtime/data/indexed_dataset.hpp"
#include "runtime/data/split_plan.hpp"
#include "runtime/data/token_cache.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kValidKey = 0x56414C4944;  // the order of evaluation, of no seed

using Documents = std::vector<std::shared_ptr<const DocumentSource>>;

Documents open_indexed(const std::vector<std::string>& prefixes) {
  Documents sources;
  for (const std::string& prefix : prefixes)
    sources.push_back(std::make_shared<IndexedDataset>(prefix));
  return sources;
}

std::shared_ptr<const TokenSource> chain(const Documents& sources) {
  if (sources.size() == 1) return sources[0];
  std::vector<ChainedSource::Piece> pieces;
  for (const auto& source : sources) pieces.push_back({source, {0, source->size()}});
  return std::make_shared<ChainedSource>(std::move(pieces));
}

std::shared_ptr<const TokenSource> select(const std::shared_ptr<const TokenSource>& source,
                                          const std::vector<TokenRange>& ranges) {
  std::vector<ChainedSource::Piece> pieces;
  for (const TokenRange& range : ranges) pieces.push_back({source, range});
  return std::make_shared<ChainedSource>(std::move(pieces));
}

std::vector<std::int64_t> document_starts(const Documents& sources) {
  std::vector<std::int64_t> starts{0};
  for (const auto& source : sources) {
    const std::int64_t base = starts.back();
    const auto of_source = source->document_starts();
    for (const std::int64_t start : of_source.subspan(1)) starts.push_back(base + start);
  }
  return starts;
}

std::string cache_dir_of(const DataOptions& options) {
  return options.cache_dir.empty() ? ".cache/tokens" : options.cache_dir;
}

// The largest token of a Megatron file, remembered in the cache folder since finding it reads all.
std::int64_t largest_token(const std::string& prefix, const std::string& cache_dir) {
  const auto source = std::make_shared<IndexedDataset>(prefix);
  const std::vector<TextFile> file = find_text_files({source->path()});
  Hasher hasher;
  hasher.add("largest token v1");
  hasher.add(file[0].path);
  hasher.add(file[0].size_bytes);
  hasher.add(file[0].modified_ns);
  make_folder(cache_dir);
  const std::string path = cache_dir + "/" + hasher.digest_hex() + ".largest";
  const FileLock lock(path + ".lock", "waiting for another process that reads " + file[0].path);
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    const std::string text = read_whole_file(path, kKiB);
    std::int64_t largest = -1;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), largest);
    if (parsed.ec == std::errc() && largest >= 0 && text.ends_with('\n')) return largest;
  }
  log_info("reading " + file[0].path + " for its largest token");
  const TokenExtent extent = extent_of(*source);
  if (extent.smallest < 0) {
    throw IoError(source->path() + " holds the negative token " + std::to_string(extent.smallest),
                  source->path());
  }
  AtomicFile remembered(path);
  remembered.append(std::to_string(extent.largest) + "\n");
  remembered.commit();
  return extent.largest;
}

std::int64_t samples_in(std::int64_t tokens, std::int64_t seq) {
  return tokens > seq ? (tokens - 1) / seq : 0;
}

std::int64_t largest_token(const DataOptions& options) {
  std::int64_t largest = -1;
  for (const auto* prefixes : {&options.train, &options.valid}) {
    for (const std::string& prefix : *prefixes) {
      largest = std::max(largest, largest_token(prefix, cache_dir_of(options)));
    }
  }
  return largest;
}

TokenCacheRequest cache_request(const DataOptions& options, const Tokenizer& tokenizer) {
  TokenCacheRequest request;
  request.folder = cache_dir_of(options);
  request.files = find_text_files(options.text);
  request.tokenizer = &tokenizer;
  request.read.json_key = options.json_key;
  return request;
}

struct Splits {
  std::shared_ptr<const TokenSource> train, valid;
};

Splits split_sources(const Documents& sources, const DataOptions& options) {
  const std::shared_ptr<const TokenSource> all = chain(sources);
  if (!options.valid.empty()) return {all, chain(open_indexed(options.valid))};
  const SplitPlan plan = plan_split(document_starts(sources), options.split[0], options.split[1]);
  return {select(all, plan.train), select(all, plan.valid)};
}

// Throws IoError if no sample to train on exists. Logs the sizes.
void check_splits(const Splits& splits, const DataOptions& options, std::int64_t seq) {
  const std::int64_t train_tokens = splits.train->size(), valid_tokens = splits.valid->size();
  const std::int64_t train_samples = samples_in(train_tokens, seq);
  if (train_samples == 0) {
    throw IoError("the training data holds " + std::to_string(train_tokens) +
                      " tokens (validation has " + std::to_string(valid_tokens) +
                      "), but one sample of model.seq " + std::to_string(seq) + " needs " +
                      std::to_string(seq + 1) + "; add text, lower model.seq or change data.split",
                  options.text.empty() ? options.train[0] : options.text[0]);
  }
  log_info("data: " + format_count(static_cast<double>(train_tokens)) + " tokens for training (" +
           std::to_string(train_samples) + " samples), " +
           format_count(static_cast<double>(valid_tokens)) + " for validation (" +
           std::to_string(samples_in(valid_tokens, seq)) + " samples)");
}

void check_options(const DataOptions& options, std::int64_t seq) {
  if (seq <= 0) throw ConfigError("model.seq = " + std::to_string(seq) + "; expected at least 1");
  if (options.text.empty() == options.train.empty()) {
    throw ConfigError(options.text.empty()
                          ? "data: nothing to train on; give data.text or data.train"
                          : "data: text and train exclude each other; give one");
  }
  double sum = 0;
  for (const double share : options.split) sum += share >= 0 ? share : std::nan("");
  if (options.split.size() != 2 || !(sum > 0) || !std::isfinite(sum)) {
    throw ConfigError(
        "data.split: expected two shares, of training and validation, neither below 0 and "
        "not both 0");
  }
}

}  // namespace

TrainingData::TrainingData(const DataOptions& options, std::int64_t seq, std::uint64_t seed)
    : seq_(seq) {
  check_options(options, seq);
  Documents sources;
  if (!options.text.empty() || options.tokenizer != "bytes") {
    tokenizer_ = make_tokenizer(options.tokenizer);
  }
  if (!options.text.empty()) {
    sources.push_back(TokenCache::open_or_build(cache_request(options, *tokenizer_)));
  } else {
    sources = open_indexed(options.train);
  }
  const Splits splits = split_sources(sources, options);
  train_ = splits.train;
  valid_ = splits.valid;
  vocab_size_ = tokenizer_ != nullptr ? tokenizer_->vocab_size() : largest_token(options) + 1;
  train_order_ = SampleOrder(samples_in(train_tokens(), seq), seed);
  valid_order_ = SampleOrder(samples_in(valid_tokens(), seq), kValidKey);
  check_splits(splits, options, seq);
}

TrainingData::~TrainingData() = default;

std::int64_t TrainingData::train_tokens() const { return train_->size(); }
std::int64_t TrainingData::valid_tokens() const { return valid_->size(); }

void TrainingData::train_rows(std::int64_t step, std::int64_t global_batch, std::int64_t first_row,
                              std::int64_t rows, SampleRows& out) const {
  check(step >= 1 && first_row >= 0 && rows >= 0 && first_row + rows <= global_batch,
        "train_rows outside the global batch");
  (void)failpoint("data.read");
  fill(*train_, train_order_, (step - 1) * global_batch + first_row, rows, out);
}

void TrainingData::valid_rows(std::int64_t index, std::int64_t global_batch, std::int64_t first_row,
                              std::int64_t rows, SampleRows& out) const {
  check(index >= 0 && first_row >= 0 && rows >= 0 && first_row + rows <= global_batch,
        "valid_rows outside the global batch");
  const std::int64_t samples = valid_order_.samples();
  check(samples > 0, "valid_rows without validation data");
  // Batches wrap within the one fixed order instead of going on to another epoch's.
  out.tokens.clear();
  out.targets.clear();
  SampleRows part;
  for (std::int64_t done = 0; done < rows;) {
    const std::int64_t draw = (index * global_batch + first_row + done) % samples;
    const std::int64_t count = std::min(rows - done, samples - draw);
    fill(*valid_, valid_order_, draw, count, part);
    out.tokens.insert(out.tokens.end(), part.tokens.begin(), part.tokens.end());
    out.targets.insert(out.targets.end(), part.targets.begin(), part.targets.end());
    done += count;
  }
}

std::int64_t survey_data(const DataOptions& options, std::int64_t seq, bool needs_vocab) {
  check_options(options, seq);
  std::unique_ptr<Tokenizer> tokenizer;
  if (!options.text.empty() || options.tokenizer != "bytes") {
    tokenizer = make_tokenizer(options.tokenizer);
  }
  Documents sources;
  if (options.text.empty()) {
    sources = open_indexed(options.train);
  } else {
    const TokenCacheRequest request = cache_request(options, *tokenizer);
    if (auto cache = TokenCache::open_existing(request)) {
      sources.push_back(std::move(cache));
    } else {
      std::int64_t bytes = 0;
      for (const TextFile& file : request.files) {
        if (file.named && file.size_bytes == 0) {
          throw IoError("data.text: " + file.path + " is empty", file.path);
        }
        bytes += file.size_bytes;
      }
      const std::size_t count = request.files.size();
      log_info("data: " + std::to_string(count) + (count == 1 ? " file" : " files") + " of text, " +
               format_bytes(bytes) + "; not read, the run tokenises them at its start");
    }
  }
  if (!sources.empty()) check_splits(split_sources(sources, options), options, seq);
  if (tokenizer != nullptr) return tokenizer->vocab_size();
  return needs_vocab ? largest_token(options) + 1 : 0;
}

void TrainingData::fill(const TokenSource& source, const SampleOrder& order,
                        std::int64_t first_draw, std::int64_t rows, SampleRows& out) const {
  const auto seq = static_cast<std::size_t>(seq_);
  out.tokens.resize(static_cast<std::size_t>(rows) * seq);
  out.targets.resize(out.tokens.size());
  std::vector<std::int64_t> sample(seq + 1);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t first = order.draw(first_draw + row) * seq_;
    source.read(first, sample);
    for (const std::int64_t token : sample) {
      if (token >= 0 && token < vocab_size_) continue;
      throw IoError("the data holds token " + std::to_string(token) + " near position " +
                        std::to_string(first) + ", outside the vocabulary of " +
                        std::to_string(vocab_size_) +
                        "; data.tokenizer is another one, or the file is damaged",
                    "");
    }
    const auto at = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(row) * seq);
    std::copy(sample.begin(), sample.end() - 1, out.tokens.begin() + at);
    std::copy(sample.begin() + 1, sample.end(), out.targets.begin() + at);
  }
}

}  // namespace sluice
