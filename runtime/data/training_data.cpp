#include "runtime/data/training_data.hpp"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/log.hpp"
#include "base/posix/atomic_file.hpp"
#include "kernels/cpu/softmax_cross_entropy.hpp"
#include "runtime/data/data_sets.hpp"
#include "runtime/data/file_io.hpp"
#include "runtime/data/hash.hpp"
#include "runtime/data/indexed_dataset.hpp"
#include "runtime/data/text_files.hpp"
#include "runtime/data/tokenizer/learned_options.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kValidKey = 0x56414C4944;  // the order of evaluation, of no seed

// The largest token of a Megatron file, remembered in the cache folder since finding it reads all.
std::int64_t largest_token(const std::string& prefix, const std::string& cache_dir) {
  const auto source = std::make_shared<IndexedDataset>(prefix);
  const std::vector<TextFile> file = find_text_files({source->path()});
  Hasher hasher;
  hasher.add("largest token v1");
  add_identity(hasher, file[0]);
  make_folder(cache_dir);
  const std::string path = cache_dir + "/" + hasher.digest_hex() + ".largest";
  const FileLock lock(path + ".lock", "waiting for another process that reads " + file[0].path);
  if (path_exists(path)) {
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

std::int64_t largest_token(const DataOptions& options) {
  std::int64_t largest = -1;
  for (const std::string& prefix : indexed_paths(options)) {
    largest = std::max(largest, largest_token(prefix, cache_dir_of(options)));
  }
  return largest;
}

std::string samples_of(const SampleMix& mix, const std::string& purpose) {
  return format_count(static_cast<double>(mix.tokens())) + " tokens for " + purpose + " (" +
         counted(mix.samples(), "sample") + ")";
}

// Throws IoError if the validation data that `key` names have no sample.
void check_named(const DataOptions& options, const std::string& key, const SampleMix& valid,
                 std::int64_t seq) {
  if (valid.samples() > 0) return;
  throw IoError(
      key + (options.sft.empty()
                 ? " holds " + std::to_string(valid.tokens()) +
                       " tokens, but one sample of model.seq " + std::to_string(seq) + " needs " +
                       std::to_string(seq + 1) + "; name more text or lower model.seq"
                 : " has no conversation with a learned token within model.seq (" +
                       std::to_string(seq) + "); name others or raise model.seq"),
      key);
}

// Throws IoError if data.valid has no sample. A share without one is a note: it may be small by
// intent.
void check_valid(const DataOptions& options, const SampleMix& valid, std::int64_t seq) {
  if (!options.valid.empty()) {
    const bool one = options.valid.size() == 1;
    check_named(options, one ? "data.valid: " + options.valid.front() : "data.valid", valid, seq);
  } else if (valid.samples() == 0 && shares_of(options).valid > 0) {
    log_info("data: the run does not validate on the share of data.split: its " +
             std::to_string(valid.tokens()) + " tokens hold no sample of model.seq " +
             std::to_string(seq) + "; raise the share, or name data.valid");
  }
}

// Throws IoError if a part has no sample to train on, or data.valid none. Logs the sizes.
void check_sizes(const DataOptions& options, const SampleMix& train, const SampleMix& valid,
                 std::int64_t seq) {
  const bool blend = train.parts().size() > 1;
  for (const MixPart& part : train.parts()) {
    if (part.samples || samples_in(part.source->size(), seq) > 0) continue;
    throw IoError((blend ? "the training data of " + part.name + " hold "
                         : std::string("the training data holds ")) +
                      std::to_string(part.source->size()) + " tokens (validation has " +
                      std::to_string(valid.tokens()) + "), but one sample of model.seq " +
                      std::to_string(seq) + " needs " + std::to_string(seq + 1) +
                      "; add text, lower model.seq or change data.split",
                  part.name);
  }
  if (train.samples() == 0) {
    throw IoError("data.sft: no conversation with a learned token within model.seq (" +
                      std::to_string(seq) + ") is left to train on; raise model.seq",
                  train.parts().front().name);
  }
  log_info("data: " + samples_of(train, "training") + ", " + samples_of(valid, "validation"));
  check_valid(options, valid, seq);
  if (!blend) return;
  double sum = 0;
  for (const MixPart& part : train.parts()) sum += part.weight;
  for (const MixPart& part : train.parts()) {
    log_info("data: " + format_count(100 * part.weight / sum) + " % from " + part.name +
             (part.samples ? "" : ", " + counted(samples_in(part.source->size(), seq), "sample")));
  }
}

void check_seq(std::int64_t seq) {
  if (seq <= 0) throw ConfigError("model.seq = " + std::to_string(seq) + "; expected at least 1");
}

}  // namespace

TrainingData::TrainingData(const DataOptions& options, std::int64_t seq, std::uint64_t seed,
                           const OnTokenizer& on_tokenizer)
    : TrainingData((check_seq(seq), open_data_sets(options, Caches::kBuild, on_tokenizer)), options,
                   seq, seed) {}

TrainingData::TrainingData(DataSets&& sets, const DataOptions& options, std::int64_t seq,
                           std::uint64_t seed)
    : seq_(seq),
      packs_rows_(options.packs_rows()),
      tokenizer_(std::move(sets.tokenizer)),
      vocab_size_(tokenizer_ != nullptr ? tokenizer_->vocab_size() : largest_token(options) + 1),
      train_(std::move(sets.train), seq, seed, Epochs::kMixed),
      valid_(std::move(sets.valid), seq, kValidKey, Epochs::kEqual) {
  for (const MixPart& part : sets.test) test_tokens_ += part.source->size();
  check_sizes(options, train_, valid_, seq);
  for (NamedParts& set : sets.valid_sets) {
    sets_.emplace_back(std::move(set.parts), seq, kValidKey, Epochs::kEqual);
    set_names_.push_back(set.name);
    check_named(options, "data.valid_sets: " + set.name, sets_.back(), seq);
  }
}

TrainingData::~TrainingData() = default;

void TrainingData::train_rows(std::int64_t step, std::int64_t global_batch, std::int64_t first_row,
                              std::int64_t rows, SampleRows& out) const {
  check(step >= 1 && first_row >= 0 && rows >= 0 && first_row + rows <= global_batch,
        "train_rows outside the global batch");
  (void)failpoint("data.read");
  fill(train_, step - 1, global_batch, first_row, rows, out);
}

void TrainingData::valid_rows(std::int64_t index, std::int64_t global_batch, std::int64_t first_row,
                              std::int64_t rows, SampleRows& out) const {
  check(index >= 0 && first_row >= 0 && rows >= 0 && first_row + rows <= global_batch,
        "valid_rows outside the global batch");
  check(valid_.samples() > 0, "valid_rows without validation data");
  fill(valid_, index, global_batch, first_row, rows, out);
}

void TrainingData::set_rows(std::size_t set, std::int64_t index, std::int64_t global_batch,
                            std::int64_t first_row, std::int64_t rows, SampleRows& out) const {
  check(set < sets_.size() && index >= 0 && first_row >= 0 && rows >= 0 &&
            first_row + rows <= global_batch,
        "set_rows outside the global batch");
  fill(sets_[set], index, global_batch, first_row, rows, out);
}

void log_epochs(const SampleMix& train, std::int64_t steps, std::int64_t global_batch) {
  const auto [fewest, most] = train.epochs(steps * global_batch);
  const bool one = fewest == most;
  log_info("data: " + counted(steps, "step") + " of " + counted(global_batch, "sample") +
           (steps == 1 ? " makes " : " make ") + (one ? "" : format_count(fewest) + " to ") +
           format_count(most) + (one && most == 1 ? " epoch" : " epochs") +
           (one ? "" : " of the parts"));
}

std::int64_t survey_data(const DataOptions& options, std::int64_t seq, bool needs_vocab,
                         const std::function<void(const SampleMix& train)>& on_train) {
  check_seq(seq);
  DataSets sets = open_data_sets(options, Caches::kExisting);
  if (sets.complete) {
    const SampleMix train(std::move(sets.train), seq, 0, Epochs::kMixed);
    check_sizes(options, train, SampleMix(std::move(sets.valid), seq, 0, Epochs::kEqual), seq);
    if (on_train) on_train(train);
  }
  if (sets.tokenizer != nullptr) return sets.tokenizer->vocab_size();
  if (const auto learned = learned_vocab(options.tokenizer)) return *learned;
  return needs_vocab ? largest_token(options) + 1 : 0;
}

void TrainingData::fill(const SampleMix& mix, std::int64_t batch, std::int64_t global_batch,
                        std::int64_t first_row, std::int64_t rows, SampleRows& out) const {
  const auto seq = static_cast<std::size_t>(seq_);
  out.tokens.resize(static_cast<std::size_t>(rows) * seq);
  out.targets.resize(out.tokens.size());
  out.cu_seqlens.resize(packs_rows_ ? static_cast<std::size_t>(rows) : 0);
  const std::int64_t first_draw = batch * global_batch;
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
    const auto tokens = std::span(out.tokens).subspan(row * seq, seq);
    const auto targets = std::span(out.targets).subspan(row * seq, seq);
    const std::int64_t draw = first_draw + first_row + static_cast<std::int64_t>(row);
    const std::int64_t first =
        mix.read(draw, {tokens, targets, packs_rows_ ? &out.cu_seqlens[row] : nullptr});
    for (std::size_t i = 0; i <= seq; ++i) {
      const std::int64_t token = i < seq ? tokens[i] : targets[seq - 1];
      if ((token >= 0 && token < vocab_size_) || (i == seq && token == kIgnoreTarget)) continue;
      throw IoError("the data holds token " + std::to_string(token) + " near position " +
                        std::to_string(first) + ", outside the vocabulary of " +
                        std::to_string(vocab_size_) +
                        "; data.tokenizer is another one, or the file is damaged",
                    "");
    }
  }
  out.learned_targets = packs_rows_ ? learned_targets(mix, batch, global_batch) : 0;
}

std::int64_t TrainingData::learned_targets(const SampleMix& mix, std::int64_t batch,
                                           std::int64_t global_batch) const {
  const std::lock_guard lock(counted_mutex_);
  if (counted_.mix == &mix && counted_.batch == batch && counted_.global_batch == global_batch) {
    return counted_.targets;
  }
  std::int64_t targets = 0;
  for (std::int64_t row = 0; row < global_batch; ++row) {
    targets += mix.learned(batch * global_batch + row);
  }
  // Documents of one token have no target: the loss of a batch of these is 0, not 0 / 0.
  counted_ = {&mix, batch, global_batch, std::max<std::int64_t>(targets, 1)};
  return counted_.targets;
}

}  // namespace sluice
