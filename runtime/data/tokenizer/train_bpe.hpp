// Learns a byte-level BPE vocabulary from text: GPT-2's procedure and files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

struct BpeTrainOptions {
  std::vector<std::string> text;  // as data.text
  std::string json_key = "text";  // as data.json_key
  std::int64_t vocab_size = 0;    // 256 bytes + merges + <|endoftext|>, so at least 257
  std::int64_t min_count = 2;     // pairs that come more rarely are not merged
  std::string out_dir;            // gets vocab.json and merges.txt
};

struct BpeTrainResult {
  std::int64_t vocab_size = 0;  // less than asked for where the text had no more pairs
  std::int64_t merges = 0;
  std::int64_t words = 0;  // distinct ones
};

// Repeats until the vocabulary is full: merges the most frequent pair of neighbours within GPT-2's
// words; among equals the pair with the smaller ids. Memory is that of the distinct words. The
// result depends only on the text. Throws ConfigError (vocab_size; out_dir holds a tokenizer) and
// IoError (files; a text without a word).
BpeTrainResult train_bpe(const BpeTrainOptions& options);

}  // namespace sluice
