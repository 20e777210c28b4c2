// The unigram language model: the cut of a word into pieces whose scores have the largest sum.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "runtime/data/tokenizer/model/word_model.hpp"

namespace sluice {

class Unigram : public WordModel {
 public:
  struct Piece {
    std::string text;
    double score = 0;
    bool matches = true;        // else only its id exists, as for <s>
    bool user_defined = false;  // SentencePiece's: taken before all others
  };
  struct Options {
    std::string name;            // for errors
    std::int32_t unknown = -1;   // the id of characters without a piece
    bool byte_fallback = false;  // pieces <0x00> to <0xFF> instead, where all are there
    // SentencePiece's arithmetic: sums in float, and the unknown's score from matching pieces only.
    // Else Hugging Face's: sums in double, and a run of unknown characters is looked up as a piece.
    bool sentencepiece = false;
  };
  // Throws IoError if no piece stands for unknown characters.
  Unigram(std::vector<Piece> pieces, const Options& options);
  void encode(std::string_view word, std::vector<std::int32_t>& out) const override;

 private:
  struct Node {
    double score = 0;
    std::int32_t id = kUnreached;
    std::uint32_t bytes = 0;
  };
  static constexpr std::int32_t kUnreached = -1;
  struct TrieNode {
    std::int32_t id = -1;
    std::uint32_t first = 0;  // in edges_
    std::uint32_t count = 0;
  };
  struct Edge {
    std::uint8_t byte;
    std::uint32_t node;
  };
  void build_trie();
  [[nodiscard]] const TrieNode* child(const TrieNode& node, std::uint8_t byte) const;
  void offer(Node& node, double score, std::int32_t id, std::size_t bytes) const;
  void walk(std::string_view word, std::vector<Node>& ends) const;
  void append_unknown(std::string_view text, std::vector<std::int32_t>& out) const;

  std::vector<Piece> pieces_;
  Options options_;
  std::vector<TrieNode> nodes_;
  std::vector<Edge> edges_;  // of a node: ascending bytes
  std::array<std::int32_t, 256> id_of_byte_{};
  double unknown_score_ = 0, most_score_ = 0;
};

}  // namespace sluice
