// The files by which transformers uses a model with our tokenizer.
#pragma once

#include <string>

#include "runtime/checkpoint/format/manifest.hpp"
#include "runtime/checkpoint/hf/hf_export.hpp"
#include "runtime/model/model_options.hpp"

namespace sluice {

// Sets options.made and options.tokens: tokenizer.json, tokenizer_config.json and
// generation_config.json of the tokenizer that `spec` means, and the tokens that end a text.
// `record`: of the checkpoint. Throws as make_tokenizer.
void add_tokenizer(HfExportOptions& options, const std::string& spec, const TokenizerRecord& record,
                   const ModelOptions& model);

}  // namespace sluice
