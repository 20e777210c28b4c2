#include "runtime/cli/hf_tokenizer.hpp"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/data/tokenizer/added_tokens.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"
#include "runtime/data/tokenizer/tokenizer_json_write.hpp"
#include "runtime/data/tokenizer/tokenizer_source.hpp"
#include "runtime/run/saved_tokenizer.hpp"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

Json eos_of(const HfTokens& tokens) {
  if (tokens.eos.empty()) return nullptr;
  return tokens.eos.size() == 1 ? Json(tokens.eos.front()) : Json(tokens.eos);
}

std::string tokenizer_config(const Tokenizer& tokenizer, TokenizerKind kind, const HfTokens& tokens,
                             const RunConfig& run) {
  Json json{{"tokenizer_class", "PreTrainedTokenizerFast"},
            {"model_max_length", run.model.seq},
            {"clean_up_tokenization_spaces", false}};
  const std::int32_t end = tokenizer.end_of_text();
  if (!tokens.eos.empty()) json["eos_token"] = tokenizer.decode({&end, 1});
  if (tokens.bos) json["bos_token"] = tokenizer.decode({&*tokens.bos, 1});
  // Only a tokenizer.json says that its special tokens are recognised in a text. In a
  // conversation they always are.
  if (kind != TokenizerKind::kJson && run.data.sft.empty()) json["split_special_tokens"] = true;
  // A tokenizer.json has its tokens in the file.
  for (const AddedToken& token : tokenizer.chat_tokens()) {
    if (kind != TokenizerKind::kSentencePiece) break;
    json["added_tokens_decoder"][std::to_string(token.id)] = {
        {"content", token.content}, {"lstrip", token.lstrip},           {"rstrip", token.rstrip},
        {"normalized", false},      {"single_word", token.single_word}, {"special", true}};
  }
  return json.dump(2) + "\n";
}

std::string generation_config(const HfTokens& tokens) {
  Json json{{"eos_token_id", eos_of(tokens)}};
  json["bos_token_id"] = tokens.bos ? Json(*tokens.bos) : Json();
  return json.dump(2) + "\n";
}

}  // namespace

void add_tokenizer(HfExportOptions& options, const std::string& spec, const TokenizerRecord& record,
                   const RunConfig& run) {
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(spec);
  const TokenizerSource source = find_tokenizer(spec);
  HfTokens& tokens = options.tokens;
  std::set<std::int32_t> ends(record.end_tokens.begin(), record.end_tokens.end());
  if (tokenizer->end_of_text() < run.model.vocab) ends.insert(tokenizer->end_of_text());
  tokens.eos = {ends.begin(), ends.end()};
  if (tokenizer->leading().size() == 1) tokens.bos = tokenizer->leading().front();
  // End tokens of the model's origin are those of its config.json.
  tokens.replace = record.known() && record.end_tokens.empty();
  if (source.kind == TokenizerKind::kSentencePiece) {
    options.made = {{"tokenizer.model", read_tokenizer_texts(source).front().text}};
  } else {
    options.made = {{"tokenizer.json", write_tokenizer_json(spec)}};
  }
  options.made.push_back(
      {"tokenizer_config.json", tokenizer_config(*tokenizer, source.kind, tokens, run)});
  if (!run.data.sft.empty() && !run.data.chat_template.empty()) {
    TokenizerRecord chats = record;
    add_chat_template(*tokenizer, spec, run.data.chat_template, chats);
    options.made.push_back({"chat_template.jinja", *chats.files.back().text});
  }
  if (options.carried_config.empty() || tokens.replace) {
    options.made.push_back({"generation_config.json", generation_config(tokens)});
  }
}

}  // namespace sluice
