#include "runtime/data/tokenizer/folder_tokens.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "runtime/data/file_io.hpp"
#include "runtime/data/tokenizer/bpe_files.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::int64_t kLargestFile = 64 * kMiB;

// Null if there is no such file.
Json read_object(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return {};
  Json json = Json::parse(read_whole_file(path.string(), kLargestFile), nullptr, false);
  if (!json.is_object()) throw IoError(path.string() + " is not a JSON object", path.string());
  return json;
}

// tokenizer_config.json with the keys of special_tokens_map.json; null without both.
Json read_settings(const fs::path& config_path) {
  Json settings = read_object(config_path);
  if (settings.is_object() && settings.contains("added_tokens_decoder")) return settings;
  const Json map = read_object(config_path.parent_path() / "special_tokens_map.json");
  if (map.is_null()) return settings;
  if (settings.is_null()) settings = Json::object();
  settings.update(map);
  return settings;
}

bool flag(const Json& token, const char* name) {
  const auto found = token.find(name);
  return found != token.end() && found->is_boolean() && found->get<bool>();
}

bool is_id(const Json& value) {
  return value.is_number_integer() && value.get<std::int64_t>() >= 0 &&
         value.get<std::int64_t>() < kMostIds;
}

void add_token(const fs::path& path, AddedToken token, std::vector<AddedToken>& to) {
  for (const AddedToken& there : to) {
    if (there.id != token.id) continue;
    if (there.content == token.content) return;
    throw IoError(path.string() + ": id " + std::to_string(token.id) + " is '" + token.content +
                      "', and '" + there.content + "' in a file beside it",
                  path.string());
  }
  to.push_back(std::move(token));
}

// {"292": {"content": "<|im_start|>", "lstrip": false, ...}}
void read_decoder(const fs::path& path, const Json& decoder, std::vector<AddedToken>& to) {
  if (!decoder.is_object()) return;
  for (const auto& [key, json] : decoder.items()) {
    std::int32_t id = -1;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool whole = parsed.ec == std::errc() && parsed.ptr == key.data() + key.size();
    if (!whole || id < 0 || id >= kMostIds || !json.is_object() || !json.contains("content") ||
        !json["content"].is_string()) {
      throw IoError(path.string() + ": added_tokens_decoder: '" + key + "' is no token with an id",
                    path.string());
    }
    AddedToken token;
    token.content = json["content"].get<std::string>();
    token.id = id;
    token.lstrip = flag(json, "lstrip");
    token.rstrip = flag(json, "rstrip");
    token.single_word = flag(json, "single_word");
    if (!token.content.empty()) add_token(path, std::move(token), to);
  }
}

// {"<|im_start|>": 292}
void read_added(const fs::path& path, const Json& json, std::vector<AddedToken>& to) {
  if (!json.is_object()) return;
  for (const auto& [content, id] : json.items()) {
    if (content.empty() || !is_id(id)) {
      throw IoError(path.string() + ": '" + content + "' is no token with an id", path.string());
    }
    AddedToken token;
    token.content = content;
    token.id = id.get<std::int32_t>();
    add_token(path, std::move(token), to);
  }
}

// A token is a string, or an object with `content`.
std::optional<std::string> token_of(const Json& value) {
  const Json token = value.is_object() ? value.value("content", Json()) : value;
  return token.is_string() ? std::optional(token.get<std::string>()) : std::nullopt;
}

std::string content_of(const Json& value) { return token_of(value).value_or(""); }

// Every "..._token", and the keys of an object extra_special_tokens.
std::vector<std::pair<std::string, std::string>> named_in(const Json& settings) {
  std::vector<std::pair<std::string, std::string>> tokens;
  const auto add = [&](const std::string& key, const Json& value) {
    if (auto content = token_of(value)) tokens.emplace_back(key, std::move(*content));
  };
  if (!settings.is_object()) return tokens;
  for (const auto& [key, value] : settings.items()) {
    if (key.ends_with("_token")) add(key, value);
  }
  const Json extra = settings.value("extra_special_tokens", Json());
  if (!extra.is_object()) return tokens;
  for (const auto& [key, value] : extra.items()) add(key, value);
  return tokens;
}

std::vector<std::string> special_names(const Json& settings) {
  std::vector<std::string> names;
  const auto add = [&](std::string name) {
    if (!name.empty()) names.push_back(std::move(name));
  };
  for (const auto& [key, content] : named_in(settings)) add(content);
  for (const char* list : {"additional_special_tokens", "extra_special_tokens"}) {
    const Json more = settings.value(list, Json());
    for (const Json& value : more.is_array() ? more : Json::array()) add(content_of(value));
  }
  return names;
}

// A number, or a list of numbers.
std::vector<std::int32_t> eos_ids_of(const Json& config) {
  const Json value = config.is_object() ? config.value("eos_token_id", Json()) : Json();
  std::vector<std::int32_t> ids;
  for (const Json& id : value.is_array() ? value : Json::array({value})) {
    if (is_id(id)) ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

std::vector<std::int32_t> read_eos_ids(const fs::path& folder) {
  try {
    const Json generation = read_object(folder / "generation_config.json");
    return eos_ids_of(generation.is_null() ? read_object(folder / "config.json") : generation);
  } catch (const IoError&) {
    return {};
  }
}

// One beyond the last piece: none has the name.
std::size_t named_end(const std::vector<std::string>& pieces) {
  constexpr std::array<std::string_view, 6> kNames{
      kEndOfTextName, "<|end_of_text|>", "</s>",
      "<eos>",        "<|eot_id|>",      "<\uFF5Cend\u2581of\u2581sentence\uFF5C>"};
  for (const std::string_view name : kNames) {
    const auto found = std::find(pieces.begin(), pieces.end(), name);
    if (found != pieces.end()) return static_cast<std::size_t>(found - pieces.begin());
  }
  return pieces.size();
}

void append_added(std::vector<std::string>& pieces, const FolderTokens& folder) {
  for (const AddedToken& token : folder.added) {
    const auto index = static_cast<std::size_t>(token.id);
    if (index >= pieces.size()) pieces.resize(index + 1);
    if (pieces[index].empty()) pieces[index] = token.content;
    if (pieces[index] == token.content) continue;
    std::string bytes;
    if (from_alphabet(token.content, bytes) && pieces[index] == bytes) continue;
    throw IoError(folder.path + ": the added token '" + token.content + "' has the id " +
                      std::to_string(token.id) + ", which is '" + pieces[index] +
                      "' in the tokenizer's file: the files are of two tokenizers",
                  folder.path);
  }
}

}  // namespace

FolderTokens read_folder_tokens(const TokenizerSource& source) {
  FolderTokens tokens;
  if (source.paths.empty()) return tokens;
  const fs::path file = source.paths.front();
  const std::string name = file.filename().string();
  if (name != "tokenizer.json" && name != "vocab.json" && name != "tokenizer.model") return tokens;
  const fs::path folder = file.parent_path();
  const fs::path config_path = folder / "tokenizer_config.json";
  const fs::path added_path = folder / "added_tokens.json";
  tokens.path = config_path.string();
  const Json settings = read_settings(config_path);
  if (settings.is_object()) {
    tokens.eos_token = content_of(settings.value("eos_token", Json()));
    tokens.names = special_names(settings);
    tokens.split_special = flag(settings, "split_special_tokens");
    read_decoder(config_path, settings.value("added_tokens_decoder", Json()), tokens.added);
  }
  read_added(added_path, read_object(added_path), tokens.added);
  tokens.eos_ids = read_eos_ids(folder);
  return tokens;
}

std::vector<std::pair<std::string, std::string>> named_tokens(const std::string& config) {
  return named_in(read_settings(config));
}

std::vector<AddedToken> special_tokens_of(const FolderTokens& folder,
                                          const std::vector<std::string>& pieces) {
  std::vector<AddedToken> tokens = folder.added;
  for (const std::string& name : folder.names) {
    const auto found = std::find(pieces.begin(), pieces.end(), name);
    AddedToken token;
    token.content = name;
    token.id = static_cast<std::int32_t>(found - pieces.begin());
    const auto is_same = [&](const AddedToken& there) { return there.id == token.id; };
    if (found == pieces.end() || std::any_of(tokens.begin(), tokens.end(), is_same)) continue;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

namespace {

// eos_token, the first of eos_ids that is special, or the first customary name; else one beyond
// the last piece.
std::size_t end_of(const std::vector<std::string>& pieces, const FolderTokens& folder,
                   const std::function<bool(std::int32_t)>& is_special) {
  const auto named = std::find(pieces.begin(), pieces.end(), folder.eos_token);
  if (!folder.eos_token.empty() && named != pieces.end()) {
    return static_cast<std::size_t>(named - pieces.begin());
  }
  for (const std::int32_t id : folder.eos_ids) {
    const auto index = static_cast<std::size_t>(id);
    if (index < pieces.size() && !pieces[index].empty() && is_special(id)) return index;
  }
  return named_end(pieces);
}

}  // namespace

EndOfText settle_special_tokens(std::vector<std::string>& pieces, const FolderTokens& folder,
                                bool with_added,
                                const std::function<bool(std::int32_t)>& is_special) {
  const std::size_t own_end = named_end(pieces);
  const std::size_t own_size = std::max(pieces.size(), own_end + 1);
  if (with_added) append_added(pieces, folder);
  const std::size_t end = end_of(pieces, folder, is_special);
  EndOfText result{static_cast<std::int32_t>(end), end == pieces.size()};
  if (result.is_new) pieces.emplace_back(kEndOfTextName);
  if (end != own_end || pieces.size() != own_size) {
    result.mark = "+end " + std::to_string(end) + " of " + std::to_string(pieces.size());
  }
  return result;
}

}  // namespace sluice
