#include "runtime/data/tokenizer/bpe_files.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_map>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/index.hpp"
#include "base/posix/atomic_file.hpp"
#include "runtime/data/file_io.hpp"
#include "runtime/data/tokenizer/split_pattern.hpp"
#include "runtime/data/tokenizer/tokenizer_source.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kLargestFile = 512 * kMiB;

[[noreturn]] void fail_at_line(const std::string& path, std::size_t line, const std::string& what) {
  throw IoError(path + ":" + std::to_string(line) + ": " + what, path);
}

// Calls visit(line, number from 1) for each line, without its end.
template <typename Visit>
void for_each_line(std::string_view text, Visit&& visit) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    visit(line, number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// OpenAI and Meta put end-of-text after the ranks of these files. In other files it has the first
// hole of the ranks (r50k, p50k), or the next id.
std::size_t tiktoken_end_of_text(const std::vector<std::string>& pieces) {
  constexpr std::array<std::pair<std::size_t, std::size_t>, 3> kKnown{
      {{100256, 100257}, {199998, 199999}, {128000, 128001}}};
  for (const auto& [ranks, id] : kKnown) {
    if (pieces.size() == ranks) return id;
  }
  const auto hole = std::find(pieces.begin(), pieces.end(), std::string());
  return static_cast<std::size_t>(hole - pieces.begin());
}

// tiktoken merges two neighbours when their bytes together are a piece, and its id is the rank:
// every way of cutting a piece into two others is a merge.
std::vector<BpeMerge> merges_of_ranks(const std::vector<std::string>& pieces) {
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    if (!pieces[id].empty()) ids.emplace(pieces[id], static_cast<std::int32_t>(id));
  }
  std::vector<BpeMerge> merges;
  for (const auto& [piece, id] : ids) {
    for (std::size_t cut = 1; cut < piece.size(); ++cut) {
      const auto left = ids.find(piece.substr(0, cut));
      if (left == ids.end()) continue;
      const auto right = ids.find(piece.substr(cut));
      if (right != ids.end()) merges.push_back({left->second, right->second, id, id});
    }
  }
  return merges;
}

}  // namespace

bool decode_base64(std::string_view text, std::string& bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.empty() || text.size() % 4 != 0) return false;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  text.remove_suffix(padding);
  bytes.clear();
  std::uint32_t bits = 0;
  unsigned held = 0;
  for (const char digit : text) {
    const std::size_t value = kDigits.find(digit);
    if (value == std::string_view::npos) return false;
    bits = (bits << 6U | static_cast<std::uint32_t>(value)) & 0xFFFFU;
    held += 6;
    if (held >= 8) {
      held -= 8;
      bytes += static_cast<char>(bits >> held & 0xFFU);
    }
  }
  return true;
}

void set_piece(std::vector<std::string>& pieces, const std::string& path, std::int32_t id,
               std::string piece) {
  const auto index = static_cast<std::size_t>(id);
  if (index >= pieces.size()) pieces.resize(index + 1);
  if (!pieces[index].empty() && pieces[index] != piece) {
    throw IoError(path + ": id " + std::to_string(id) + " stands for two pieces", path);
  }
  pieces[index] = std::move(piece);
}

BpeModel read_gpt2_files(const std::string& vocab_path, const std::string& merges_path,
                         const FolderTokens& folder) {
  const std::string vocab_text = read_whole_file(vocab_path, kLargestFile);
  const std::string merges_text = read_whole_file(merges_path, kLargestFile);
  const auto vocab = parse_vocab_json(vocab_path, vocab_text);
  BpeModel model;
  for (const auto& [written, id] : vocab) {
    std::string piece = written;
    (void)from_alphabet(written, piece);  // a special token may be of other characters
    set_piece(model.pieces, vocab_path, id, std::move(piece));
  }
  const auto id_of = [&](const std::string& piece, std::size_t line) {
    const auto found = vocab.find(piece);
    if (found == vocab.end()) {
      fail_at_line(merges_path, line, "'" + piece + "' is not in " + vocab_path);
    }
    return found->second;
  };
  for_each_line(merges_text, [&](std::string_view line, std::size_t number) {
    if (line.empty() || (number == 1 && line.starts_with("#version"))) return;
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      fail_at_line(merges_path, number, "expected two pieces with a space between them");
    }
    const std::string left(line.substr(0, space)), right(line.substr(space + 1));
    model.merges.push_back({id_of(left, number), id_of(right, number), id_of(left + right, number),
                            static_cast<std::int32_t>(model.merges.size())});
  });
  // A piece that no merge makes is a special token.
  std::vector<bool> made(model.pieces.size());
  for (const BpeMerge& merge : model.merges) nth(made, merge.result) = true;
  model.end = settle_special_tokens(model.pieces, folder, true, [&](std::int32_t id) {
    const auto index = static_cast<std::size_t>(id);
    return model.pieces[index].size() > 1 && (index >= made.size() || !made[index]);
  });
  model.added = special_tokens_of(folder, model.pieces);
  model.split_special = folder.split_special;
  model.pattern = kGpt2Pattern;
  model.name = "gpt2 (" + vocab_path + ")";
  model.fingerprint = text_fingerprint(TokenizerKind::kGpt2, {vocab_text, merges_text});
  return model;
}

BpeModel read_tiktoken_file(const std::string& path) {
  const std::string text = read_whole_file(path, kLargestFile);
  BpeModel model;
  for_each_line(text, [&](std::string_view line, std::size_t number) {
    if (line.empty()) return;
    const std::size_t space = std::min(line.find(' '), line.size());
    const std::string_view digits = line.substr(std::min(space + 1, line.size()));
    std::string piece;
    std::int32_t id = -1;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), id);
    if (!decode_base64(line.substr(0, space), piece) || parsed.ec != std::errc() ||
        parsed.ptr != digits.data() + digits.size() || id < 0 || id >= kMostIds) {
      fail_at_line(path, number, "expected a piece in base64, a space and its rank");
    }
    set_piece(model.pieces, path, id, std::move(piece));
  });
  if (model.pieces.empty()) throw IoError(path + " holds no ranks", path);
  model.merges = merges_of_ranks(model.pieces);
  const std::size_t ranks = model.pieces.size();
  const std::size_t end = tiktoken_end_of_text(model.pieces);
  if (end >= ranks) model.pieces.resize(end + 1);
  model.pieces[end] = kEndOfTextName;
  model.end.id = static_cast<std::int32_t>(end);
  model.pattern = ranks < 100000 ? kGpt2Pattern : ranks < 190000 ? kCl100kPattern : kO200kPattern;
  model.name = "tiktoken (" + path + ")";
  model.fingerprint = text_fingerprint(TokenizerKind::kTiktoken, {text});
  model.whole_words_first = true;
  return model;
}

void write_gpt2_files(const std::string& folder, const std::vector<std::string>& pieces,
                      const std::vector<std::pair<std::int32_t, std::int32_t>>& merges) {
  make_folder(folder);
  const auto written = [&](std::size_t id) {
    return id + 1 == pieces.size() ? pieces[id] : to_alphabet(pieces[id]);
  };
  const auto quoted = [](const std::string& text) {  // the alphabet has no control characters
    std::string out = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
    return out + "\"";
  };
  AtomicFile vocab_file(folder + "/vocab.json");
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    vocab_file.append((id == 0 ? "{" : ", ") + quoted(written(id)) + ": " + std::to_string(id));
  }
  vocab_file.append("}\n");
  AtomicFile merges_file(folder + "/merges.txt");
  merges_file.append("#version: 0.2\n");
  for (const auto& [left, right] : merges) {
    merges_file.append(written(static_cast<std::size_t>(left)) + " " +
                       written(static_cast<std::size_t>(right)) + "\n");
  }
  vocab_file.commit();
  merges_file.commit();
}

}  // namespace sluice
