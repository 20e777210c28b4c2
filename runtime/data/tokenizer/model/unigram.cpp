#include "runtime/data/tokenizer/model/unigram.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>

#include "base/error.hpp"
#include "base/index.hpp"
#include "runtime/data/tokenizer/model/char_bpe.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

constexpr double kUnknownPenalty = 10;

}  // namespace

Unigram::Unigram(std::vector<Piece> pieces, const Options& options)
    : pieces_(std::move(pieces)), options_(options) {
  if (options_.unknown < 0 || static_cast<std::size_t>(options_.unknown) >= pieces_.size()) {
    throw IoError(options_.name + ": no piece stands for unknown characters", options_.name);
  }
  double least = std::numeric_limits<double>::max();
  most_score_ = std::numeric_limits<double>::lowest();
  std::vector<std::string> names;
  for (const Piece& piece : pieces_) {
    names.push_back(piece.text);
    if (options_.sentencepiece && (!piece.matches || piece.user_defined)) continue;
    least = std::min(least, piece.score);
    most_score_ = std::max(most_score_, piece.score);
  }
  unknown_score_ = least - kUnknownPenalty;
  if (options_.sentencepiece) {
    unknown_score_ = static_cast<float>(least) - static_cast<float>(kUnknownPenalty);
  }
  id_of_byte_ = byte_pieces(PieceTable(names));
  build_trie();
}

// Level by level over the sorted pieces: a node is a range of pieces with a common prefix.
void Unigram::build_trie() {
  std::vector<std::int32_t> order;
  for (std::size_t id = 0; id < pieces_.size(); ++id) {
    if (pieces_[id].matches && !pieces_[id].text.empty())
      order.push_back(static_cast<std::int32_t>(id));
  }
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return nth(pieces_, a).text < nth(pieces_, b).text;
  });
  struct Range {
    std::size_t first, end, depth;
  };
  std::vector<Range> ranges{{0, order.size(), 0}};
  nodes_.emplace_back();
  for (std::size_t at = 0; at < ranges.size(); ++at) {
    Range range = ranges[at];
    while (range.first < range.end && nth(pieces_, order[range.first]).text.size() == range.depth) {
      nodes_[at].id = order[range.first++];  // of equal pieces the last, as in a map
    }
    nodes_[at].first = static_cast<std::uint32_t>(edges_.size());
    while (range.first < range.end) {
      const char byte = nth(pieces_, order[range.first]).text[range.depth];
      std::size_t end = range.first;
      while (end < range.end && nth(pieces_, order[end]).text[range.depth] == byte) ++end;
      edges_.push_back(
          {static_cast<std::uint8_t>(byte), static_cast<std::uint32_t>(nodes_.size())});
      nodes_.emplace_back();
      ++nodes_[at].count;
      ranges.push_back({range.first, end, range.depth + 1});
      range.first = end;
    }
  }
}

const Unigram::TrieNode* Unigram::child(const TrieNode& node, std::uint8_t byte) const {
  const Edge* const first = edges_.data() + node.first;
  const Edge* const end = first + node.count;
  const Edge* const found = std::lower_bound(
      first, end, byte, [](const Edge& edge, std::uint8_t b) { return edge.byte < b; });
  return found != end && found->byte == byte ? &nodes_[found->node] : nullptr;
}

void Unigram::offer(Node& node, double score, std::int32_t id, std::size_t bytes) const {
  if (options_.sentencepiece) score = static_cast<float>(score);  // ties as there
  if (node.id != kUnreached && !(score > node.score)) return;
  node = {score, id, static_cast<std::uint32_t>(bytes)};
}

// ends[i]: the best cut of the first i bytes, by its last piece.
void Unigram::walk(std::string_view word, std::vector<Node>& ends) const {
  ends.assign(word.size() + 1, {});
  for (std::size_t at = 0; at < word.size();) {
    std::size_t length = 0;
    (void)first_code_point(word.substr(at), length);
    const double here = ends[at].score;
    bool single = false;  // a piece is this character alone
    const TrieNode* node = nodes_.data();
    for (std::size_t end = at; end < word.size();) {
      node = child(*node, static_cast<std::uint8_t>(word[end++]));
      if (node == nullptr) break;
      if (node->id < 0) continue;
      const Piece& piece = nth(pieces_, node->id);
      double score = piece.score;
      if (piece.user_defined) {
        score =
            static_cast<double>(static_cast<float>(end - at) * static_cast<float>(most_score_)) -
            0.1;
      } else if (options_.sentencepiece) {
        score = static_cast<float>(score);
      }
      offer(ends[end], score + here, node->id, end - at);
      single = single || end - at == length;
    }
    if (!single) {
      const double score =
          options_.sentencepiece
              ? static_cast<double>(static_cast<float>(unknown_score_) + static_cast<float>(here))
              : unknown_score_ + here;
      offer(ends[at + length], score, options_.unknown, length);
    }
    at += length;
  }
}

void Unigram::append_unknown(std::string_view text, std::vector<std::int32_t>& out) const {
  const auto id_of = [&](char byte) { return id_of_byte_[static_cast<std::uint8_t>(byte)]; };
  if (options_.byte_fallback && text != nth(pieces_, options_.unknown).text &&
      std::all_of(text.begin(), text.end(), [&](char byte) { return id_of(byte) >= 0; })) {
    for (const char byte : text) out.push_back(id_of(byte));
  } else {
    out.push_back(options_.unknown);
  }
}

void Unigram::encode(std::string_view word, std::vector<std::int32_t>& out) const {
  thread_local std::vector<Node> ends;
  walk(word, ends);
  thread_local std::vector<std::pair<std::size_t, std::size_t>> cuts;  // first byte, end
  cuts.clear();
  bool joins = false;
  for (std::size_t end = word.size(); end > 0;) {
    const Node& node = ends[end];
    const std::size_t first = end - node.bytes;
    const bool unknown = node.id == options_.unknown;
    if (unknown && joins) {
      cuts.back().first = first;
    } else {
      cuts.emplace_back(first, end);
    }
    joins = unknown;
    end = first;
  }
  for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
    const std::int32_t id = ends[cut->second].id;
    if (id == options_.unknown) {
      append_unknown(word.substr(cut->first, cut->second - cut->first), out);
    } else {
      out.push_back(id);
    }
  }
}

}  // namespace sluice
