#include "runtime/run/saved_tokenizer.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "runtime/checkpoint/io/checkpoint_catalog.hpp"
#include "runtime/checkpoint/io/file_system.hpp"
#include "runtime/checkpoint/io/tokenizer_files.hpp"
#include "runtime/data/chat/chat_encoder.hpp"
#include "runtime/data/tokenizer/folder_tokens.hpp"
#include "runtime/data/tokenizer/tokenizer_source.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLargestCompanion = std::int64_t{64} << 20;

// Adds companions only for a file under its usual name: other folders hold unrelated files.
void add_companions(const TokenizerSource& source, TokenizerRecord& record) {
  const fs::path path = source.paths.front();
  if (path.filename() != record.files.front().name) return;
  FileSystem& files = local_file_system();
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                           "chat_template.jinja", "chat_template.json", "generation_config.json"}) {
    const std::string beside = (path.parent_path() / name).string();
    const auto there = files.stat(beside);
    if (!there || there->directory) continue;
    record.files.push_back(tokenizer_file(name, read_text(files, beside, kLargestCompanion)));
  }
}

// The template's text, preceded by one line per special token that the template uses and the saved
// tokenizer does not define. A checkpoint does not store the tokenizer_config.json next to the
// template.
std::string with_tokens(const ChatTemplateSource& used, const ChatTemplateSource& known) {
  std::string lines;
  for (const auto& [name, token] : used.tokens.items()) {
    const jinja::Value* there = known.tokens.find(name);
    const bool same = there != nullptr && *there->as_text() == *token.as_text();
    if (same || used.text.find(name) == std::string::npos) continue;
    lines += "{% set " + name + " = " + nlohmann::json(*token.as_text()).dump() + " %}\n";
  }
  return lines + used.text;
}

// config.json, which may name the end of text, is no file of a checkpoint: the record gets a
// generation_config.json with the name.
void keep_end_of_text(const Tokenizer& tokenizer, const TokenizerSource& source,
                      TokenizerRecord& record) {
  const FolderTokens folder = read_folder_tokens(source);
  const std::int32_t end = tokenizer.end_of_text();
  if (tokenizer.decode({&end, 1}) == folder.eos_token ||
      record.has_file("generation_config.json")) {
    return;
  }
  if (std::find(folder.eos_ids.begin(), folder.eos_ids.end(), end) == folder.eos_ids.end()) return;
  record.files.push_back(tokenizer_file("generation_config.json",
                                        "{\"eos_token_id\": " + std::to_string(end) + "}\n"));
}

// Whether a resumed run takes the saved record of its tokenizer.
bool inherits(const TokenizerRecord& now, const TokenizerRecord& saved) {
  if (!saved.known()) return false;
  // With end tokens of its own, the run names a folder that has them.
  return !now.known() || (now.fingerprint == saved.fingerprint && now.end_tokens.empty());
}

// The contents of the same file in `record`; null: `record` does not hold them.
std::shared_ptr<const std::string> text_in(const TokenizerRecord& record,
                                           const TokenizerFile& file) {
  for (const TokenizerFile& held : record.files) {
    if (held.name == file.name && held.bytes == file.bytes && held.hash == file.hash) {
      return held.text;
    }
  }
  return nullptr;
}

}  // namespace

TokenizerRecord tokenizer_record(const Tokenizer& tokenizer, const std::string& spec,
                                 std::vector<std::int32_t> end_tokens) {
  const TokenizerSource source = find_tokenizer(spec);
  std::vector<TokenizerText> texts = read_tokenizer_texts(source);
  TokenizerRecord record;
  record.fingerprint = tokenizer.fingerprint();
  record.vocab = tokenizer.vocab_size();
  record.end_tokens = std::move(end_tokens);
  if (tokenizer_fingerprint(source.kind, texts) != record.fingerprint) {
    throw IoError("data.tokenizer " + spec + " was changed while the run started: start it again",
                  spec);
  }
  for (TokenizerText& file : texts) {
    record.files.push_back(tokenizer_file(file.name, std::move(file.text)));
  }
  if (!record.files.empty()) add_companions(source, record);
  keep_end_of_text(tokenizer, source, record);
  return record;
}

void add_chat_template(const Tokenizer& tokenizer, const std::string& spec,
                       const std::string& chat_template, TokenizerRecord& record) {
  const auto used = chat_template_of(tokenizer, spec, chat_template);
  if (!used) return;  // completions need none
  const fs::path path = used->path;
  if (chat_template.empty() && record.has_file(path.filename().string())) return;
  ChatTemplateSource known;
  const bool has_names =
      record.has_file("tokenizer_config.json") || record.has_file("special_tokens_map.json");
  const std::string folder =
      has_names ? fs::path(find_tokenizer(spec).paths.front()).parent_path().string() : "";
  add_known_tokens(tokenizer, folder, known);
  std::erase_if(record.files,
                [](const TokenizerFile& file) { return file.name == "chat_template.jinja"; });
  record.files.push_back(tokenizer_file("chat_template.jinja", with_tokens(*used, known)));
}

void inherit_tokenizer(TokenizerRecord& now, const TokenizerRecord& saved, FileSystem& files,
                       const std::string& path) {
  if (!inherits(now, saved)) return;
  now = saved;
  read_tokenizer_files(files, path, now);
}

std::string inherit_from_image(TokenizerRecord& now, const TokenizerRecord& saved,
                               FileSystem& files, const std::string& dir) {
  if (!inherits(now, saved)) return "";
  TokenizerRecord inherited = saved;
  try {
    std::optional<std::string> newest;
    for (TokenizerFile& file : inherited.files) {
      file.text = text_in(now, file);
      if (file.text != nullptr) continue;
      if (!newest) newest = newest_complete(files, dir, Trust::kManifest).path.value_or(dir);
      file.text = std::make_shared<const std::string>(read_tokenizer_file(files, *newest, file));
    }
    now = std::move(inherited);
    return "";
  } catch (const Error& error) {
    if (now.known()) now.end_tokens = saved.end_tokens;
    return error.what();
  }
}

}  // namespace sluice
