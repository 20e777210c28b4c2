// The files that transformers needs for a model with our tokenizer.
#pragma once

#include <string>

#include "configs/run_config.hpp"
#include "runtime/checkpoint/format/manifest.hpp"
#include "runtime/checkpoint/hf/hf_export.hpp"

namespace sluice {

// Sets options.made and options.tokens: tokenizer.json, tokenizer_config.json and
// generation_config.json for the tokenizer of `spec`, and the tokens that end a text. `record`: the
// checkpoint's. Of a run on conversations also its template, chat_template.jinja, and its end of a
// turn in generation_config.json, which is changed if one of options.companions has that file.
// Throws as make_tokenizer, chat_template_of and read_hf_end_tokens.
void add_tokenizer(HfExportOptions& options, const std::string& spec, const TokenizerRecord& record,
                   const RunConfig& run);

}  // namespace sluice
