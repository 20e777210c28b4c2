// Text to Megatron's .bin/.idx: what `sluice data prepare IN... -o PREFIX` does. The files equal
// those of Megatron's preprocess_data for the same tokenizer. The bytes depend on the inputs, their
// order after find_text_files (by path) and the options, on nothing else: not on threads, not on
// interruptions. A killed run goes on from its last record (prepare_state.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/data/text_files.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"

namespace sluice {

struct PrepareOptions {
  std::vector<TextFile> files;
  std::string prefix;                          // of PREFIX_<key>_document.bin and .idx
  std::vector<std::string> json_keys{"text"};  // an output for each
  bool append_eod = false;                     // end-of-text after each document
  const Tokenizer* tokenizer = nullptr;
  int threads = 0;                           // 0: the machine's, at most 16
  std::size_t piece_bytes = 2U << 20U;       // of input that one thread has in hand
  std::int64_t record_bytes = 256LL << 20U;  // of text between two records
  // Called between rounds with the input's bytes done and in all. An exception interrupts the run.
  std::function<void(std::int64_t, std::int64_t)> progress;
};

struct PreparedOutput {
  std::string prefix;  // with key and "_document"
  std::int64_t documents = 0, tokens = 0;
};

struct PrepareResult {
  std::vector<PreparedOutput> outputs;  // in the order of json_keys
  std::int64_t empty = 0;     // documents without a token, kept in the index; over all outputs
  std::int64_t left_out = 0;  // files without text that were found, not named
  bool resumed = false;
};

// Throws ConfigError if an output exists or the options contradict each other, IoError if an input
// cannot be read (with file and line) or an output cannot be written.
PrepareResult prepare_tokens(const PrepareOptions& options);

}  // namespace sluice
