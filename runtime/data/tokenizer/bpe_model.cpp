#include "runtime/data/tokenizer/bpe_model.hpp"

#include "runtime/data/tokenizer/model/byte_bpe.hpp"
#include "runtime/data/tokenizer/text_tokenizer.hpp"

namespace sluice {

std::unique_ptr<Tokenizer> bpe_tokenizer(BpeModel model) {
  TokenizerParts parts;
  parts.byte_level = true;
  parts.words = std::make_unique<ByteBpe>(
      model.pieces, model.merges,
      ByteBpe::Options{model.name, model.whole_words_first, model.end.id});
  if (!model.pattern.empty()) {
    parts.pre_tokenizer.add_pattern(model.pattern, MatchFate::kIsolated, false);
  }
  parts.pieces = std::move(model.pieces);
  parts.end = std::move(model.end);
  parts.chat = std::move(model.added);
  parts.split_special = model.split_special;
  parts.name = std::move(model.name);
  parts.fingerprint = std::move(model.fingerprint);
  return std::make_unique<TextTokenizer>(std::move(parts));
}

}  // namespace sluice
