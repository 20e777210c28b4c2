// The files that transformers needs for a model with our tokenizer.
#pragma once

#include <string>

#include "runtime/checkpoint/format/manifest.hpp"
#include "runtime/checkpoint/hf/hf_export.hpp"
#include "runtime/model/model_options.hpp"

namespace sluice {

// Sets options.made and options.tokens: tokenizer.json, tokenizer_config.json and
// generation_config.json for the tokenizer of `spec`, and the tokens that end a text. `record`: the
// checkpoint's. `chats`: of a run on conversations, whose texts have special tokens by name. Throws
// as make_tokenizer.
void add_tokenizer(HfExportOptions& options, const std::string& spec, const TokenizerRecord& record,
                   const ModelOptions& model, bool chats);

}  // namespace sluice
