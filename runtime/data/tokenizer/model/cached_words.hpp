// Remembers the ids of recent words, in tables of 7 MiB a thread.
#pragma once

#include "runtime/data/tokenizer/model/word_model.hpp"

namespace sluice {

class CachedWords : public WordModel {
 public:
  CachedWords();
  void encode(std::string_view word, std::vector<std::int32_t>& out) const override;
  void encode_text(std::string_view text, WordRule rule,
                   std::vector<std::int32_t>& out) const override;

 protected:
  // Replaces `out` by the ids of `word`. REQUIRES: the word alone decides. Thread-safe.
  virtual void encode_word(std::string_view word, std::vector<std::int32_t>& out) const = 0;

 private:
  class Sink;
  class Batch;
  std::uint64_t serial_;  // tells the caches of different vocabularies apart
};

}  // namespace sluice
