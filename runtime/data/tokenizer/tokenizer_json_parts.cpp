#include "runtime/data/tokenizer/tokenizer_json_parts.hpp"

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "runtime/data/tokenizer/bpe_files.hpp"

namespace sluice {
namespace {

using Json = nlohmann::json;

constexpr int kDeepestSequence = 16;  // Sequences within Sequences

void check_depth(const std::string& path, int depth) {
  if (depth > kDeepestSequence) refuse_part(path, "Sequence", "is nested too deeply");
}

// A pattern of the file. The tokenizers' regular expressions know no \Q.
std::string pattern_of(const Json& pattern) {
  if (pattern.contains("Regex")) return pattern["Regex"].get<std::string>();
  std::string escaped;
  for (const char c : pattern.at("String").get<std::string>()) {
    const bool plain = (static_cast<std::uint8_t>(c) & 0x80U) != 0 || std::isalnum(c) != 0;
    if (c == '\n') {
      escaped += "\\n";
    } else if (c == '\0') {
      escaped += "\\x00";
    } else {
      escaped += plain ? std::string(1, c) : std::string("\\") + c;
    }
  }
  return escaped;
}

// Calls make() and names the file in the errors of a pattern.
template <typename Make>
void with_pattern(const std::string& path, Make&& make) {
  try {
    make();
  } catch (const ConfigError& error) {
    throw ConfigError(path + ": " + error.what());
  } catch (const SplitError& error) {
    throw IoError(path + ": " + error.what(), path);
  }
}

void read_replace(const std::string& path, const Json& json, Normalizer& out) {
  const Json& pattern = json.at("pattern");
  auto to = json.at("content").get<std::string>();
  if (pattern.contains("String")) {
    out.add(replace(pattern["String"].get<std::string>(), std::move(to)));
  } else {
    with_pattern(path, [&] { out.add(replace_pattern(pattern_of(pattern), std::move(to))); });
  }
}

void read_charsmap(const std::string& path, const Json& json, Normalizer& out) {
  const Json& written = json.at("precompiled_charsmap");
  std::string blob;
  if (written.is_null() || written == "") return;
  if (!decode_base64(written.get<std::string>(), blob)) {
    throw IoError(path + ": precompiled_charsmap is not base64", path);
  }
  out.add(precompiled(Charsmap(path, blob)));
}

// Control characters vanish, and several kinds of space become a space.
void add_nmt(Normalizer& out) {
  out.add(replace_pattern(R"([\x01-\x08\x0b\x0e-\x1f\x7f\x{8f}\x{9f}]+)", ""));
  out.add(replace_pattern(
      R"([\t\n\x0c\r\x{1680}\x{200b}-\x{200f}\x{2028}\x{2029}\x{2581}\x{feff}\x{fffd}])", " "));
}

void read_normalizer_at(const std::string& path, const Json& json, int depth, Normalizer& out) {
  const std::string type = type_of_part(json);
  check_depth(path, depth);
  if (json.is_null()) return;
  if (type == "Sequence") {
    for (const Json& part : json.at("normalizers")) read_normalizer_at(path, part, depth + 1, out);
  } else if (type == "NFC") {
    out.add(unicode_form(UnicodeForm::kNfc));
  } else if (type == "NFD") {
    out.add(unicode_form(UnicodeForm::kNfd));
  } else if (type == "NFKC") {
    out.add(unicode_form(UnicodeForm::kNfkc));
  } else if (type == "NFKD") {
    out.add(unicode_form(UnicodeForm::kNfkd));
  } else if (type == "Lowercase") {
    out.add(lowercase());
  } else if (type == "StripAccents") {
    out.add(strip_accents());
  } else if (type == "Strip") {
    out.add(strip_spaces(json.value("strip_left", true), json.value("strip_right", true)));
  } else if (type == "Prepend") {
    out.add(prepend(json.at("prepend").get<std::string>()));
  } else if (type == "Replace") {
    read_replace(path, json, out);
  } else if (type == "Precompiled") {
    read_charsmap(path, json, out);
  } else if (type == "Nmt") {
    add_nmt(out);
  } else {
    refuse_part(path, "normalizer " + type, "is not supported");
  }
}

MatchFate fate_of(const std::string& path, const std::string& part, const std::string& behavior) {
  if (behavior == "Isolated") return MatchFate::kIsolated;
  if (behavior == "Removed") return MatchFate::kRemoved;
  if (behavior == "Contiguous") return MatchFate::kContiguous;
  if (behavior == "MergedWithPrevious") return MatchFate::kMergedWithPrevious;
  if (behavior == "MergedWithNext") return MatchFate::kMergedWithNext;
  refuse_part(path, "pre_tokenizer " + part, "with behavior " + behavior + " is not supported");
}

PrefixScheme scheme_of(const std::string& path, const Json& json) {
  const std::string scheme = json.value("prepend_scheme", "always");
  if (scheme == "never" || !json.value("add_prefix_space", true)) return PrefixScheme::kNever;
  if (scheme == "first") return PrefixScheme::kFirst;
  if (scheme == "always") return PrefixScheme::kAlways;
  refuse_part(path, "Metaspace", "with prepend_scheme " + scheme + " is not supported");
}

class PreTokenizerReader {
 public:
  PreTokenizerReader(const std::string& path, PreTokenizer& out) : path_(path), out_(out) {}
  void read(const Json& json, int depth);
  [[nodiscard]] bool byte_level() const { return byte_level_; }

 private:
  static constexpr const char* kPunctuation = R"([\p{P}$+<=>^`|~])";

  void add(const std::string& pattern, MatchFate fate, bool invert = false) {
    with_pattern(path_, [&] { out_.add_pattern(pattern, fate, invert); });
  }
  void read_byte_level(const Json& json) {
    if (json.value("add_prefix_space", true)) out_.add_space_prefix();
    if (json.value("use_regex", true)) add(kGpt2Pattern, MatchFate::kIsolated);
    byte_level_ = true;
  }
  void read_split(const Json& json) {
    const MatchFate fate = fate_of(path_, "Split", json.value("behavior", "Isolated"));
    const bool invert = json.value("invert", false);
    const std::string pattern = pattern_of(json.at("pattern"));
    // Matches are words, and so are the gaps between them: no text is lost.
    const bool both =
        fate == MatchFate::kRemoved && invert && word_rule_of(pattern) != WordRule::kNone;
    add(pattern, both ? MatchFate::kIsolated : fate, invert && !both);
  }

  const std::string& path_;
  PreTokenizer& out_;
  bool byte_level_ = false;
};

void PreTokenizerReader::read(const Json& json, int depth) {
  const std::string type = type_of_part(json);
  check_depth(path_, depth);
  if (json.is_null()) return;
  if (byte_level_) refuse_part(path_, "pre_tokenizer " + type, "behind ByteLevel is not supported");
  if (type == "Sequence") {
    for (const Json& part : json.at("pretokenizers")) read(part, depth + 1);
  } else if (type == "ByteLevel") {
    read_byte_level(json);
  } else if (type == "Split") {
    read_split(json);
  } else if (type == "Digits") {
    const bool single = json.value("individual_digits", false);
    add(single ? R"(\p{N})" : R"(\p{N}+)", MatchFate::kIsolated);
  } else if (type == "Metaspace") {
    out_.add_marks(json.value("replacement", "\u2581"), scheme_of(path_, json),
                   json.value("split", true));
  } else if (type == "WhitespaceSplit") {
    add(R"(\s+)", MatchFate::kRemoved);
  } else if (type == "Whitespace") {
    add(R"([\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}]+|[^\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\s]+)",
        MatchFate::kRemoved, true);
  } else if (type == "Punctuation") {
    add(kPunctuation, fate_of(path_, type, json.value("behavior", "Isolated")));
  } else if (type == "BertPreTokenizer") {
    add(R"(\s+)", MatchFate::kRemoved);
    add(kPunctuation, MatchFate::kIsolated);
  } else if (type == "CharDelimiterSplit") {
    add(pattern_of({{"String", json.at("delimiter")}}), MatchFate::kRemoved);
  } else {
    refuse_part(path_, "pre_tokenizer " + type, "is not supported");
  }
}

void read_decoder_at(const std::string& path, const Json& json, bool byte_level, int depth,
                     PieceDecoder& out) {
  const std::string type = type_of_part(json);
  check_depth(path, depth);
  if (json.is_null() || (type == "ByteLevel" && byte_level)) return;
  if (type == "Sequence") {
    for (const Json& part : json.at("decoders")) {
      read_decoder_at(path, part, byte_level, depth + 1, out);
    }
  } else if (type == "ByteFallback") {
    out.add_byte_fallback();
  } else if (type == "Fuse") {
    out.add_fuse();
  } else if (type == "Strip") {
    out.add_strip(json.at("content").get<std::string>(), json.at("start").get<std::int64_t>(),
                  json.at("stop").get<std::int64_t>());
  } else if (type == "Replace" && json.at("pattern").contains("String")) {
    out.add_replace(json["pattern"]["String"].get<std::string>(),
                    json.at("content").get<std::string>());
  } else if (type == "Metaspace") {
    out.add_marks(json.value("replacement", "\u2581"),
                  scheme_of(path, json) != PrefixScheme::kNever);
  } else {
    refuse_part(path, "decoder " + type, "is not supported");
  }
}

}  // namespace

void refuse_part(const std::string& path, const std::string& part, const std::string& why) {
  throw ConfigError(path + ": " + part + " " + why +
                    "; without that part the ids would differ from the tokenizer's own library");
}

std::string type_of_part(const Json& part) {
  return part.is_object() ? part.value("type", "?") : part.is_null() ? "null" : "?";
}

void read_normalizer(const std::string& path, const Json& json, Normalizer& out) {
  read_normalizer_at(path, json, 0, out);
}

bool read_pre_tokenizer(const std::string& path, const Json& json, PreTokenizer& out) {
  PreTokenizerReader reader(path, out);
  reader.read(json, 0);
  return reader.byte_level();
}

void read_decoder(const std::string& path, const Json& json, bool byte_level, PieceDecoder& out) {
  read_decoder_at(path, json, byte_level, 0, out);
}

}  // namespace sluice
