// data.sft: from options to open parts of training, validation and test.
#pragma once

#include "runtime/data/chat/conversation_cache.hpp"
#include "runtime/data/data_parts.hpp"

namespace sluice {

// As open_data_sets, of options with `sft`. Logs what is left out, and how much of the rows is used
// when a part's rows are made.
[[nodiscard]] DataSets open_conversation_sets(const DataOptions& options, Caches caches,
                                              const OnTokenizer& on_tokenizer);

// The conversations of one part of data.sft. Builds the cache if it is missing.
[[nodiscard]] std::shared_ptr<const ConversationCache> open_conversations(
    const DataOptions& options, const SftPart& part, const ChatEncoder& encoder);

}  // namespace sluice
