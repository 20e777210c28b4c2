#include "runtime/data/data_sets.hpp"

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <functional>
#include <utility>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "runtime/data/chat/conversation_sets.hpp"
#include "runtime/data/file_io.hpp"
#include "runtime/data/indexed_dataset.hpp"
#include "runtime/data/split_plan.hpp"
#include "runtime/data/text_files.hpp"
#include "runtime/data/token_cache.hpp"
#include "runtime/data/tokenizer/learned_options.hpp"
#include "runtime/data/tokenizer/learned_tokenizer.hpp"

namespace sluice {
namespace {

using Documents = std::vector<std::shared_ptr<const DocumentSource>>;

void log_unread(const TokenCacheRequest& request) {
  for (const TextFile& file : request.files) {
    if (file.named && file.size_bytes == 0) {
      throw IoError(file.key + ": " + file.path + " is empty", file.path);
    }
  }
  log_info("data: " + counted(std::ssize(request.files), "file") + " of text, " +
           format_bytes(bytes_of(request.files)) +
           "; not read, the run tokenises them at its start");
}

// Opens the documents of one key. Appends nothing for text whose cache is missing and not built.
class Opener {
 public:
  Opener(const DataOptions& options, const Tokenizer* tokenizer, Caches caches)
      : options_(options), tokenizer_(tokenizer), caches_(caches) {}

  void open_text(const std::string& key, const std::vector<std::string>& specs, Documents& out) {
    TokenCacheRequest request;
    request.folder = cache_dir_of(options_);
    request.files = find_text_files(specs, key);
    check(tokenizer_ != nullptr || caches_ == Caches::kExisting, "text without a tokenizer");
    request.tokenizer = tokenizer_;
    request.read.json_key = options_.json_key;
    if (caches_ == Caches::kBuild) {
      out.push_back(TokenCache::open_or_build(request));
    } else if (auto cache = tokenizer_ ? TokenCache::open_existing(request) : nullptr) {
      out.push_back(std::move(cache));
    } else {
      log_unread(request);
      complete_ = false;
    }
  }

  [[nodiscard]] Documents open(const std::string& key, const std::vector<std::string>& paths) {
    Documents documents;
    for (const std::string& path : paths) {
      if (is_text_path(path)) {
        open_text(key, {path}, documents);
      } else {
        documents.push_back(std::make_shared<IndexedDataset>(path));
      }
    }
    return documents;
  }

  [[nodiscard]] bool complete() const { return complete_; }

 private:
  const DataOptions& options_;
  const Tokenizer* tokenizer_;
  const Caches caches_;
  bool complete_ = true;
};

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

void check_options(const DataOptions& options) {
  const int given =
      static_cast<int>(!options.text.empty()) + static_cast<int>(!options.train.empty()) +
      static_cast<int>(!options.blend.empty()) + static_cast<int>(!options.sft.empty());
  if (given != 1) {
    throw ConfigError(
        given == 0 ? "data: nothing to train on; give data.text, data.train, data.blend or data.sft"
                   : "data: text, train, blend and sft exclude each other; give one");
  }
  double sum = 0;
  for (const double share : options.split) sum += share >= 0 ? share : std::nan("");
  if (options.split.size() < 2 || options.split.size() > 3 || !(sum > 0) || !std::isfinite(sum)) {
    throw ConfigError(
        "data.split: expected two or three shares, of training, validation and test, none below 0 "
        "and not all 0");
  }
}

void add_part(const Documents& documents, const SplitShares& shares, const MixPart& part,
              DataSets& sets) {
  if (documents.empty()) return;
  const std::shared_ptr<const TokenSource> all = chain(documents);
  if (shares.valid == 0 && shares.test == 0) {
    sets.train.push_back({all, part.weight, part.name});
    return;
  }
  const SplitPlan plan = plan_split(document_starts(documents), shares);
  sets.train.push_back({select(all, plan.train), part.weight, part.name});
  if (shares.valid > 0) sets.valid.push_back({select(all, plan.valid), part.weight, part.name});
  if (shares.test > 0) sets.test.push_back({select(all, plan.test), part.weight, part.name});
}

// The text that a learned tokenizer learns from.
std::vector<std::string> training_text(const DataOptions& options) {
  std::vector<std::string> text = options.text;
  const auto add = [&text](const std::string& path) {
    if (is_text_path(path)) text.push_back(path);
  };
  for (const std::string& path : options.train) add(path);
  for (const BlendPart& part : options.blend) add(part.path);
  return text;
}

LearnRequest learn_request(const DataOptions& options) {
  const auto vocab = learned_vocab(options.tokenizer);
  if (!vocab) {
    throw ConfigError("data.tokenizer: expected bpe:N with N from " +
                      std::to_string(kFewestLearnedIds) + " to " + std::to_string(kMostLearnedIds) +
                      ", found '" + options.tokenizer + "'");
  }
  const LearnRequest request{.text = training_text(options),
                             .json_key = options.json_key,
                             .vocab_size = *vocab,
                             .cache_dir = cache_dir_of(options)};
  if (!request.text.empty()) return request;
  throw ConfigError("data.tokenizer: " + options.tokenizer +
                    " is learned from the training text, and the training data are tokens; name "
                    "their tokenizer");
}

// Nothing if the tokenizer is still to be learned, and `caches` forbids it.
std::unique_ptr<Tokenizer> open_tokenizer(const DataOptions& options, Caches caches) {
  if (!is_learned_tokenizer(options.tokenizer)) return make_tokenizer(options.tokenizer);
  const LearnRequest request = learn_request(options);
  if (caches == Caches::kBuild) return make_tokenizer(learn_tokenizer(request));
  const std::string folder = learned_tokenizer_folder(request);
  std::error_code ignored;
  return std::filesystem::is_directory(folder, ignored) ? make_tokenizer(folder) : nullptr;
}

void for_each_path(
    const DataOptions& options,
    const std::function<void(const std::string& key, const std::string& path)>& visit) {
  for (const std::string& path : options.train) visit("data.train", path);
  for (const std::string& path : options.valid) visit("data.valid", path);
  for (const std::string& path : options.test) visit("data.test", path);
  for (const BlendPart& part : options.blend) visit("data.blend", part.path);
  for (const ValidSet& set : options.valid_sets) {
    for (const std::string& path : set.path) visit("data.valid_sets", path);
  }
}

// A pair that is not there is named with its key, before text is made into tokens.
void check_pair(const std::string& key, const std::string& path) {
  if (is_text_path(path)) return;
  const std::string prefix = without_ending(path);
  for (const char* ending : {".bin", ".idx"}) {
    if (path_exists(prefix + ending)) continue;
    const std::string named = prefix + "_text_document";  // by `data prepare -o PREFIX`
    throw IoError(key + ": there is no " + prefix + ending + "; " +
                      (path_exists(named + ".idx")
                           ? named + " exists: name that"
                           : "expected a text, or the prefix of a pair .bin and .idx"),
                  prefix + ending, ENOENT);
  }
}

}  // namespace

bool is_text_path(const std::string& path) {
  const bool ending = path.ends_with(".bin") || path.ends_with(".idx");
  if (ending || path_exists(path + ".idx")) return false;
  return path_exists(path) || path.find_first_of("*?[") != std::string::npos;
}

bool reads_text(const DataOptions& options) {
  bool text = !options.text.empty() || !options.sft.empty();
  for_each_path(options, [&](const std::string&, const std::string& path) {
    text = text || is_text_path(path);
  });
  return text;
}

std::vector<std::string> indexed_paths(const DataOptions& options) {
  std::vector<std::string> prefixes;
  if (!options.sft.empty()) return prefixes;
  for_each_path(options, [&](const std::string&, const std::string& path) {
    if (!is_text_path(path)) prefixes.push_back(path);
  });
  return prefixes;
}

DataSets open_data_sets(const DataOptions& options, Caches caches,
                        const OnTokenizer& on_tokenizer) {
  check_options(options);
  if (!options.sft.empty()) return open_conversation_sets(options, caches, on_tokenizer);
  for_each_path(options, check_pair);
  DataSets sets;
  if (options.tokenizer != "bytes" || reads_text(options)) {
    sets.tokenizer = open_tokenizer(options, caches);
  }
  if (sets.tokenizer != nullptr && on_tokenizer) on_tokenizer(*sets.tokenizer);
  Opener opener(options, sets.tokenizer.get(), caches);
  const SplitShares shares = shares_of(options);
  if (!options.text.empty()) {
    Documents documents;
    opener.open_text("data.text", options.text, documents);
    add_part(documents, shares, {.source = nullptr, .name = options.text[0]}, sets);
  } else if (!options.train.empty()) {
    add_part(opener.open("data.train", options.train), shares,
             {.source = nullptr, .name = options.train[0]}, sets);
  }
  for (const BlendPart& part : options.blend) {
    add_part(opener.open("data.blend", {part.path}), shares,
             {.source = nullptr, .weight = part.weight, .name = part.path}, sets);
  }
  const Documents valid = opener.open("data.valid", options.valid);
  if (!valid.empty()) sets.valid.push_back({.source = chain(valid), .name = options.valid[0]});
  const Documents test = opener.open("data.test", options.test);
  if (!test.empty()) sets.test.push_back({.source = chain(test), .name = options.test[0]});
  for (const ValidSet& set : options.valid_sets) {
    const Documents documents = opener.open("data.valid_sets", set.path);
    if (!documents.empty()) sets.valid_sets.push_back({set.name, {{.source = chain(documents)}}});
  }
  sets.complete = opener.complete();
  return sets;
}

std::string tokenizer_spec_of(const DataOptions& options) {
  if (!is_learned_tokenizer(options.tokenizer)) return options.tokenizer;
  return learned_tokenizer_folder(learn_request(options));
}

std::shared_ptr<const TokenSource> open_paths(const DataOptions& options,
                                              const std::vector<std::string>& paths,
                                              const Tokenizer* tokenizer) {
  return chain(Opener(options, tokenizer, Caches::kBuild).open("data", paths));
}

}  // namespace sluice
