// From the `data:` section to open sources of tokens: training, validation, test. Text becomes a
// token cache at its first use; a Megatron pair is mapped. Functions are thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/data_options.hpp"
#include "runtime/data/sample_mix.hpp"
#include "runtime/data/split_plan.hpp"
#include "runtime/data/token_source.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"

namespace sluice {

struct NamedParts {
  std::string name;
  std::vector<MixPart> parts;
};

struct DataSets {
  // Nothing if all data are tokens and no key names one, or if it is still to be learned.
  std::unique_ptr<Tokenizer> tokenizer;
  std::string tokenizer_spec;               // data.tokenizer, or the folder of the learned one
  std::vector<MixPart> train, valid, test;  // a part for each of data.blend or data.sft, else one
  std::vector<NamedParts> valid_sets;
  // False: a cache or the learned tokenizer is missing, so that parts are empty
  // (Caches::kExisting).
  bool complete = true;
};

enum class Caches {
  kBuild,     // missing caches are built
  kExisting,  // missing caches are left out, and logged
};

// Told of the tokenizer before text becomes tokens, which may take hours. May throw.
using OnTokenizer = std::function<void(const Tokenizer& tokenizer)>;

// Throws ConfigError if options contradict each other, IoError if a file cannot be used.
[[nodiscard]] DataSets open_data_sets(const DataOptions& options, Caches caches,
                                      const OnTokenizer& on_tokenizer = {});

// data.tokenizer as a spec of make_tokenizer(): for bpe:N the folder of the learned tokenizer,
// which open_data_sets() makes. Throws ConfigError for a wrong N or data without text to learn
// from.
[[nodiscard]] std::string tokenizer_spec_of(const DataOptions& options);
// A share is cut off the training data only where no key names the data.
[[nodiscard]] SplitShares shares_of(const DataOptions& options);

// The documents of data.train, data.test and the like, end to end.
[[nodiscard]] std::shared_ptr<const TokenSource> open_paths(const DataOptions& options,
                                                            const std::vector<std::string>& paths,
                                                            const Tokenizer* tokenizer);

// True if `path`, as one of data.train, is text: no prefix of a .bin/.idx pair.
[[nodiscard]] bool is_text_path(const std::string& path);
// True if a key of `options` names text, which needs a tokenizer.
[[nodiscard]] bool reads_text(const DataOptions& options);
// The Megatron prefixes of all keys.
[[nodiscard]] std::vector<std::string> indexed_paths(const DataOptions& options);
// data.cache_dir, or its default.
[[nodiscard]] std::string cache_dir_of(const DataOptions& options);

}  // namespace sluice
