// A tokenizer as Hugging Face's tokenizer.json.
#pragma once

#include <string>

namespace sluice {

// The text of a tokenizer.json that gives the ids of make_tokenizer(spec): its own bytes where the
// spec means one. Of the other kinds the end-of-text is a special token there, which that library
// recognises in a text unless it is told not to (split_special_tokens). Throws as make_tokenizer.
[[nodiscard]] std::string write_tokenizer_json(const std::string& spec);

}  // namespace sluice
