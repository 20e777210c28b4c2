// Where tokens come from: the `data:` section.
#pragma once

#include <string>
#include <vector>

namespace sluice {

struct DataOptions {
  // Files, folders (searched to the bottom for .txt .md .py and other text) or globs (`**` crosses
  // folders). JSON lines (.jsonl) and gzip are read as such. Exclusive with `train`.
  std::vector<std::string> text;
  std::string json_key = "text";   // of JSON lines: whose value is a document
  std::vector<std::string> train;  // Megatron .bin/.idx prefixes
  std::vector<std::string> valid;  // Megatron .bin/.idx prefixes; empty: cut from train by `split`
  std::vector<double> split{95, 5};  // shares of training and validation, of any sum
  std::string tokenizer =
      "bytes";            // or a folder / file: vocab.json + merges.txt, *.tiktoken, tokenizer.json
  std::string cache_dir;  // token caches; empty: .cache/tokens beside the configuration
};

}  // namespace sluice
