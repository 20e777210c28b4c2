// The tokenizer bpe:N of data.tokenizer: a vocabulary that is learned from the training text at its
// first use, and kept beside the token caches. The result depends only on the text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

struct LearnRequest {
  std::vector<std::string> text;  // as data.text
  std::string json_key = "text";  // as data.json_key
  std::int64_t vocab_size = 0;
  std::string cache_dir;  // made if missing
};

// The folder of the tokenizer, a spec of make_tokenizer() once it exists. Another size, another
// text or a changed file gives another folder. Throws IoError if the text cannot be found.
[[nodiscard]] std::string learned_tokenizer_folder(const LearnRequest& request);

// Returns that folder. Learns the vocabulary first if the folder is missing: one of several
// processes learns, the others wait. The folder appears whole. Throws ConfigError if the text has
// too few pairs for `vocab_size`, IoError if a file cannot be read or written.
[[nodiscard]] std::string learn_tokenizer(const LearnRequest& request);

}  // namespace sluice
