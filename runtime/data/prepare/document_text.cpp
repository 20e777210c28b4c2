#include "runtime/data/prepare/document_text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "base/error.hpp"
#include "runtime/data/prepare/indexed_file.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

void append_escaped(char c, std::string& out) {
  const auto byte = static_cast<unsigned char>(c);
  if (c == '"' || c == '\\') {
    out += '\\';
    out += c;
  } else if (c == '\n') {
    out += "\\n";
  } else if (byte < 0x20 || byte == 0x7F) {
    std::array<char, 8> code{};
    std::snprintf(code.data(), code.size(), "\\u%04x", static_cast<unsigned>(byte));
    out += code.data();
  } else {
    out += c;
  }
}

}  // namespace

std::string json_text_line(std::string_view text) {
  std::string out = "{\"text\": \"";
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    for (const char c : text.substr(0, valid)) append_escaped(c, out);
    text.remove_prefix(valid);
    if (text.empty()) break;
    out += "\xEF\xBF\xBD";
    text.remove_prefix(1);
  }
  return out + "\"}\n";
}

void write_document_texts(const std::string& prefix, const Tokenizer& tokenizer,
                          const TextRange& range,
                          const std::function<void(std::string_view text)>& write) {
  const IndexedFile file(prefix);
  if (range.first >= file.documents()) {
    throw ConfigError("data cat: " + file.path() + " has the documents 0 to " +
                      std::to_string(file.documents() - 1) + "; --first " +
                      std::to_string(range.first) + " is behind them");
  }
  const std::int64_t left = file.documents() - range.first;
  const std::int64_t end = range.first + (range.count > 0 ? std::min(range.count, left) : left);
  IndexedFile::Document document;
  std::vector<std::int64_t> wide;
  std::vector<std::int32_t> ids;
  for (std::int64_t d = range.first; d < end; ++d) {
    file.read(d, document);
    ids.clear();
    for (std::size_t s = 0; s < document.lengths.size(); ++s) {
      wide.resize(static_cast<std::size_t>(document.lengths[s]));
      widen_tokens(file.type(), document.tokens[s].data(), wide);
      for (const std::int64_t token : wide) {
        if (token < 0 || token >= tokenizer.vocab_size()) {
          throw IoError("data cat: document " + std::to_string(d) + " of " + file.path() +
                            " holds token " + std::to_string(token) + ", and tokenizer " +
                            tokenizer.name() + " has the ids 0 to " +
                            std::to_string(tokenizer.vocab_size() - 1) +
                            "; give the tokenizer of the file with --tokenizer",
                        file.path());
        }
        ids.push_back(static_cast<std::int32_t>(token));
      }
    }
    if (!ids.empty() && ids.back() == tokenizer.end_of_text()) ids.pop_back();
    const std::string text = tokenizer.decode(ids);
    write(range.raw ? text + "\n" : json_text_line(text));
  }
}

}  // namespace sluice
