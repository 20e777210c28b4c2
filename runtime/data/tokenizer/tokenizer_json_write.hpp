// A tokenizer as Hugging Face's tokenizer.json.
#pragma once

#include <string>

namespace sluice {

// Returns the text of a tokenizer.json that gives the ids of make_tokenizer(spec); the file's own
// bytes if the spec names a tokenizer.json. In the other cases end-of-text is a special token of
// the result, which Hugging Face's library recognises in a text unless split_special_tokens is set.
// Throws as make_tokenizer, and ConfigError for a SentencePiece model.
[[nodiscard]] std::string write_tokenizer_json(const std::string& spec);

}  // namespace sluice
