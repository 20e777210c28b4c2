#include "runtime/data/chat/conversation_sets.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "runtime/data/chat/packed_conversations.hpp"
#include "runtime/data/split_plan.hpp"
#include "runtime/data/tokenizer/learned_options.hpp"

namespace sluice {
namespace {

// Of a folder or a glob the files of JSON alone.
std::vector<TextFile> conversation_files(const std::string& path, const std::string& key) {
  std::vector<TextFile> files = find_text_files({path}, key, FolderFiles::kConversations);
  std::erase_if(files, [](const TextFile& file) {
    return !file.named && (file.format == TextFormat::kPlain || file.format == TextFormat::kTable);
  });
  if (files.empty()) {
    throw IoError(key + ": " + path + " holds no conversations (.jsonl, .ndjson, .json, .parquet)",
                  path);
  }
  return files;
}

// The conversations of a part that one of training, validation and test takes.
struct Share {
  std::shared_ptr<const ConversationCache> cache;
  std::vector<TokenRange> ranges;
  std::string name, key;
};

std::shared_ptr<const SampleSource> pack(const Share& share, Truncation truncation,
                                         std::int64_t seq) {
  const std::string about = share.key + ": " + share.name;
  std::shared_ptr<const PackedConversations> rows;
  try {
    rows = std::make_shared<PackedConversations>(share.cache, share.ranges, seq, truncation);
  } catch (const ConfigError& error) {
    throw ConfigError(about + ": " + error.what());
  }
  for (const std::string& text : {rows->too_long(), rows->unlearned()}) {
    if (!text.empty()) log_warning(about + ": " + text);
  }
  const PackingCounts& counts = rows->counts();
  std::array<char, 16> percent{};
  std::snprintf(percent.data(), percent.size(), "%.1f", 100 * counts.used_share(seq));
  std::string text = about + ": " + counted(counts.documents, "conversation") + ", " +
                     format_count(static_cast<double>(counts.tokens)) + " tokens";
  if (counts.rows > 0) {
    text += ", packed into " + counted(counts.rows, "row") + " of " + std::to_string(seq) + "; " +
            percent.data() + " % of the places are used";
  }
  log_info(text);
  return rows;
}

class ConversationOpener {
 public:
  ConversationOpener(const DataOptions& options, Caches caches, const ChatEncoder& encoder)
      : options_(options), caches_(caches), encoder_(encoder) {}

  // Nothing if the cache is missing and not built.
  std::shared_ptr<const ConversationCache> open(const SftPart& part, const std::string& key) {
    const ConversationRequest request{.folder = cache_dir_of(options_),
                                      .files = conversation_files(part.path, key),
                                      .format = part.format,
                                      .encoder = &encoder_};
    auto cache = caches_ == Caches::kBuild ? ConversationCache::open_or_build(request)
                                           : ConversationCache::open_existing(request);
    if (cache == nullptr) {
      log_unread(key, request.files);
      complete_ = false;
      return nullptr;
    }
    tell(key + ": " + part.path + ": ", *cache);
    if (cache->counts().read == 0) {
      throw IoError(key + ": " + part.path + " holds no conversation to train on", part.path);
    }
    return cache;
  }

  MixPart part(const Share& share, double weight) const {
    std::vector<ChainedSource::Piece> pieces;
    for (const TokenRange& range : share.ranges) pieces.push_back({share.cache, range});
    return {.source = std::make_shared<ChainedSource>(std::move(pieces)),
            .weight = weight,
            .name = share.name,
            .samples = [share, truncation = options_.truncate](std::int64_t seq) {
              return pack(share, truncation, seq);
            }};
  }

  // All conversations of `paths`, a part for each path.
  std::vector<MixPart> whole(const std::vector<std::string>& paths, const std::string& key) {
    std::vector<MixPart> parts;
    for (const std::string& path : paths) {
      const auto cache = open({.path = path}, key);
      if (cache == nullptr) continue;
      parts.push_back(
          part({cache, {{0, cache->size()}}, path, key}, static_cast<double>(cache->size())));
    }
    return parts;
  }

  [[nodiscard]] bool complete() const { return complete_; }

 private:
  static void log_unread(const std::string& key, const std::vector<TextFile>& files) {
    log_info(key + ": " + counted(std::ssize(files), "file") + " of conversations, " +
             format_bytes(bytes_of(files)) + "; not read, the run tokenises them at its start");
  }

  static void tell(const std::string& about, const ConversationCache& cache) {
    log_info(about + cache.counts().text());
    for (const std::string& line : cache.problems()) log_warning(about + line);
  }

  const DataOptions& options_;
  const Caches caches_;
  const ChatEncoder& encoder_;
  bool complete_ = true;
};

// Whether the first conversation ends with a learned end of text, as a prompt with its completion.
bool ends_with_end_of_text(const ConversationCache& cache, const Tokenizer& tokenizer) {
  const LearnedTokens first = cache.tokens_of(0);
  return !first.ids.empty() && first.ids.back() == tokenizer.end_of_text() &&
         first.learned.back() != 0;
}

}  // namespace

std::shared_ptr<const ConversationCache> open_conversations(const DataOptions& options,
                                                            const SftPart& part,
                                                            const ChatEncoder& encoder) {
  return ConversationCache::open_or_build({.folder = cache_dir_of(options),
                                           .files = conversation_files(part.path, "data.sft"),
                                           .format = part.format,
                                           .encoder = &encoder});
}

DataSets open_conversation_sets(const DataOptions& options, Caches caches,
                                const OnTokenizer& on_tokenizer) {
  DataSets sets;
  if (is_learned_tokenizer(options.tokenizer)) {
    throw ConfigError("data.tokenizer: " + options.tokenizer +
                      " is not learned from conversations; name the tokenizer of the model");
  }
  sets.tokenizer = make_tokenizer(options.tokenizer);
  sets.tokenizer_spec = options.tokenizer;
  const ChatEncoder encoder(*sets.tokenizer, options.tokenizer, options.chat_template,
                            options.train_on);
  if (on_tokenizer) on_tokenizer(*sets.tokenizer);
  ConversationOpener opener(options, caches, encoder);
  SplitShares shares = shares_of(options);
  shares.whole_documents = true;
  bool all_end = true;
  for (const SftPart& part : options.sft) {
    const auto cache = opener.open(part, "data.sft");
    if (cache == nullptr) continue;
    all_end = all_end && ends_with_end_of_text(*cache, *sets.tokenizer);
    const SplitPlan plan = plan_split(cache->document_starts(), shares);
    const auto add = [&](const std::vector<TokenRange>& ranges, const char* key,
                         std::vector<MixPart>& parts) {
      parts.push_back(opener.part({cache, ranges, part.path, key}, part.weight));
    };
    add(plan.train, "training", sets.train);
    if (shares.valid > 0) add(plan.valid, "validation", sets.valid);
    if (shares.test > 0) add(plan.test, "test", sets.test);
  }
  for (MixPart& part : opener.whole(options.valid, "data.valid")) {
    sets.valid.push_back(std::move(part));
  }
  for (MixPart& part : opener.whole(options.test, "data.test")) {
    sets.test.push_back(std::move(part));
  }
  for (const ValidSet& set : options.valid_sets) {
    sets.valid_sets.push_back({set.name, opener.whole(set.path, "data.valid_sets")});
  }
  if (!all_end && encoder.has_template() && !encoder.ends_answers()) {
    log_warning(
        "chat template: no learned text follows an answer, so the model does not "
        "learn to end its answers; write {{ eos_token }} behind an answer, within "
        "{% generation %} if the template has such blocks");
  }
  sets.complete = opener.complete();
  return sets;
}

}  // namespace sluice
