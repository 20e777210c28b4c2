// Where tokens come from: the `data:` section.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

// A part of a blend.
struct BlendPart {
  std::string path;   // as one of DataOptions::train
  double weight = 1;  // relative to the other parts' weights

  bool operator==(const BlendPart&) const = default;
};

// A further validation set, with a loss of its own.
struct ValidSet {
  std::string name;               // in the log and in metrics.jsonl
  std::vector<std::string> path;  // as DataOptions::train

  bool operator==(const ValidSet&) const = default;
};

enum class ConversationFormat : std::uint8_t {
  kAuto,        // by the keys of the file's first object
  kShareGpt,    // conversations: [{from:, value:}]
  kOpenAi,      // messages: [{role:, content:}], tools:
  kAlpaca,      // instruction:, input:, output:
  kCompletion,  // prompt:, completion:
};

// A part of a blend of conversations.
struct SftPart {
  std::string path;  // a file, a folder or a glob
  ConversationFormat format = ConversationFormat::kAuto;
  double weight = 1;  // relative to the other parts' weights

  bool operator==(const SftPart&) const = default;
};

// What the loss of a conversation counts: the assistant's answers, every token, or the last answer.
enum class TrainOn : std::uint8_t { kAssistant, kAll, kLast };

// A conversation longer than model.seq.
enum class Truncation : std::uint8_t {
  kError,  // is refused
  kDrop,   // is left out
  kCut,    // keeps its first tokens
};

struct DataOptions {
  // Files, folders (searched to the bottom for .txt .md .py and other text) or globs (`**` crosses
  // folders). JSON lines (.jsonl) and gzip are read as such. Exclusive with `train` and `blend`.
  std::vector<std::string> text;
  std::string json_key = "text";   // of JSON lines: whose value is a document
  std::vector<std::string> train;  // Megatron .bin/.idx prefixes, or text as above
  std::vector<BlendPart> blend;    // instead of `train`: parts in exact shares
  // Instead of `train`: conversations for fine-tuning. `valid`, `valid_sets` and `test` then name
  // conversations as well.
  std::vector<SftPart> sft;
  std::string chat_template;  // a file or folder (find_chat_template); empty: the tokenizer's
  TrainOn train_on = TrainOn::kAssistant;
  Truncation truncate = Truncation::kError;
  std::vector<std::string> valid;  // as `train`; empty: cut from the training data by `split`
  std::vector<ValidSet> valid_sets;
  std::vector<std::string> test;     // as `train`; empty: cut from the training data by `split`
  std::vector<double> split{95, 5};  // shares of training, validation and test, of any sum
  // Positions restart in each document of a row, and attention does not cross documents.
  bool document_mask = false;
  // make_tokenizer() lists the kinds; bpe:N learns a vocabulary (learned_options.hpp).
  std::string tokenizer = "bytes";
  std::string cache_dir;  // token caches; empty: .cache/tokens beside the configuration

  // True if rows may hold several documents (SampleRows::cu_seqlens).
  [[nodiscard]] bool packs_rows() const { return document_mask || !sft.empty(); }
  // True if a key names data to train on.
  [[nodiscard]] bool names_training() const {
    return !text.empty() || !train.empty() || !blend.empty() || !sft.empty();
  }
};

}  // namespace sluice
