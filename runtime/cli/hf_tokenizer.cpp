#include "runtime/cli/hf_tokenizer.hpp"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "runtime/checkpoint/hf/hf_json.hpp"
#include "runtime/checkpoint/io/file_system.hpp"
#include "runtime/cli/command_output.hpp"
#include "runtime/data/chat/chat_encoder.hpp"
#include "runtime/data/tokenizer/added_tokens.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"
#include "runtime/data/tokenizer/tokenizer_json_write.hpp"
#include "runtime/data/tokenizer/tokenizer_source.hpp"
#include "runtime/run/saved_tokenizer.hpp"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kGenerationConfig[] = "generation_config.json";

using Ids = std::vector<std::int32_t>;

Json eos_of(const Ids& eos) {
  if (eos.empty()) return nullptr;
  return eos.size() == 1 ? Json(eos.front()) : Json(eos);
}

void add_new(Ids& ids, std::int32_t id) {
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
}

// Of a run on conversations, if it is one token.
std::optional<std::int32_t> end_of_turn(const Tokenizer& tokenizer, const std::string& spec,
                                        const DataOptions& data) {
  if (data.sft.empty()) return std::nullopt;
  const ChatEncoder encoder(tokenizer, spec, data.chat_template, data.train_on);
  return encoder.has_template() ? encoder.end_of_turn() : std::nullopt;
}

// The generation_config.json of the first folder that has one, with `eos` among its end tokens.
void change_generation_config(HfExportOptions& options, const Ids& eos) {
  for (const std::string& folder : options.companions) {
    const std::string path = join_path(folder, kGenerationConfig);
    if (!exists(path)) continue;
    const Ids theirs = read_hf_end_tokens(folder);
    Ids all = theirs;
    for (const std::int32_t id : eos) add_new(all, id);
    if (all == theirs) return;  // the companion is copied byte for byte
    nlohmann::json json = read_hf_json(path);
    json["eos_token_id"] = all;
    options.changed.push_back({kGenerationConfig, json.dump(2) + "\n"});
    return;
  }
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
  // conversation they are, unless the folder says otherwise.
  const bool text_alone = kind != TokenizerKind::kJson && run.data.sft.empty();
  if (text_alone || tokenizer.splits_special()) json["split_special_tokens"] = true;
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
  Json json{{"eos_token_id", eos_of(tokens.eos)}};
  json["bos_token_id"] = tokens.bos ? Json(*tokens.bos) : Json();
  return json.dump(2) + "\n";
}

}  // namespace

void add_tokenizer(HfExportOptions& options, const std::string& spec, const TokenizerRecord& record,
                   const RunConfig& run) {
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(spec);
  const TokenizerSource source = find_tokenizer(spec);
  HfTokens& tokens = options.tokens;
  // transformers pads with the first end token where no token is named for it, so the end of text
  // stands before the end of a turn.
  const std::optional<std::int32_t> turn = end_of_turn(*tokenizer, spec, run.data);
  if (tokenizer->end_of_text() < run.model.vocab) tokens.eos = {tokenizer->end_of_text()};
  if (turn && *turn < run.model.vocab) add_new(tokens.eos, *turn);
  for (const std::int32_t id : record.end_tokens) add_new(tokens.eos, id);
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
  if (turn) change_generation_config(options, tokens.eos);
  if (options.carried_config.empty() || tokens.replace || turn) {
    options.made.push_back({kGenerationConfig, generation_config(tokens)});
  }
}

}  // namespace sluice
