// From the `data:` section to open sources of tokens: training, validation, test. Text becomes a
// token cache at its first use; a Megatron pair is mapped. Functions are thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/data_options.hpp"
#include "runtime/data/data_parts.hpp"
#include "runtime/data/token_source.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"

namespace sluice {

// Throws ConfigError if options contradict each other, IoError if a file cannot be used.
[[nodiscard]] DataSets open_data_sets(const DataOptions& options, Caches caches,
                                      const OnTokenizer& on_tokenizer = {});

// data.tokenizer as a spec of make_tokenizer(): for bpe:N the folder of the learned tokenizer,
// which open_data_sets() makes. Throws ConfigError for a wrong N or data without text to learn
// from.
[[nodiscard]] std::string tokenizer_spec_of(const DataOptions& options);

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

}  // namespace sluice
