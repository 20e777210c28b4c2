// Text to token ids and back. A text is any bytes. Byte-level tokenizers without a normaliser
// encode without loss: decode(encode(x)) == x for every x. Others change the text by their rules,
// and bytes that are no UTF-8 become U+FFFD. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace sluice {

struct AddedToken;

// A text that the tokenizer cannot split, from its byte `offset` on.
class TokenizeError : public Error {
 public:
  TokenizeError(const std::string& message, std::int64_t offset)
      : Error(message), offset_(offset) {}
  [[nodiscard]] int exit_code() const override { return 4; }
  [[nodiscard]] bool recurs() const override { return true; }
  [[nodiscard]] std::int64_t offset() const { return offset_; }

 private:
  std::int64_t offset_;
};

enum class TokenKind : std::uint8_t {
  kPiece,
  kByte,     // one byte of a character that has no piece
  kUnknown,  // stands for text that has no piece
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // One more than the largest id of encode() and end_of_text(). Unused ids count.
  [[nodiscard]] virtual std::int64_t vocab_size() const = 0;
  // The id that follows each document.
  [[nodiscard]] virtual std::int32_t end_of_text() const = 0;
  // No file names the end of text: end_of_text() is an id behind the vocabulary's.
  [[nodiscard]] virtual bool end_is_new() const { return false; }
  // Throws TokenizeError if the split pattern exceeds its limits.
  [[nodiscard]] virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  // The same for a text that continues another one (find_cut): nothing is put before the text, as
  // SentencePiece's first space.
  [[nodiscard]] virtual std::vector<std::int32_t> encode_continued(std::string_view text) const {
    return encode(text);
  }
  // An unused id becomes U+FFFD. end_of_text() becomes its name, by default "<|endoftext|>". Ids
  // may cut a character: the result is the bytes, unchanged.
  [[nodiscard]] virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  // The same for ids behind others: the space at the start of a word stays.
  [[nodiscard]] virtual std::string decode_continued(std::span<const std::int32_t> ids) const {
    return decode(ids);
  }
  [[nodiscard]] virtual TokenKind kind(std::int32_t /*id*/) const { return TokenKind::kPiece; }
  // Tokens that the tokenizer's own library puts before a prompt, as Llama 3's <|begin_of_text|>;
  // mostly none. encode() omits them, since training documents have none.
  [[nodiscard]] virtual std::span<const std::int32_t> leading() const { return {}; }
  // Special tokens that encode() takes for ordinary text and that a chat template writes by name.
  [[nodiscard]] virtual std::span<const AddedToken> chat_tokens() const { return {}; }
  // split_special_tokens of the folder's tokenizer_config.json: the name of a special token is
  // ordinary text, in a chat too. As in transformers, added tokens that are not special stay
  // tokens.
  [[nodiscard]] virtual bool splits_special() const { return false; }
  // For people: "bytes", "gpt2 (/path/vocab.json)".
  [[nodiscard]] virtual const std::string& name() const = 0;
  // Of the tokenizer's own files: with equal fingerprints and splits_special() tokenizers encode
  // alike.
  [[nodiscard]] virtual const std::string& fingerprint() const = 0;
  // The same for whole documents: also of splits_special() and of the end of text that the files
  // beside choose.
  [[nodiscard]] virtual std::string document_fingerprint() const { return fingerprint(); }
};

// clang-format off
// Kinds of `spec`:
//   bytes                            256 values and an end-of-text: 257 ids
//   a folder                         the first of tokenizer.json, vocab.json + merges.txt, one *.tiktoken,
//                                    tokenizer.model
//   vocab.json, merges.txt           GPT-2's byte-level BPE; the other file lies beside. Also
//                                    *-vocab.json, *-merges.txt
//   *.tiktoken, *.model              lines "base64 rank". Split pattern by the number of ranks: GPT-2's
//                                    below 100 000, cl100k's (GPT-4, Llama 3) below 190 000, else
//                                    o200k's (GPT-4o)
//   *.model                          SentencePiece: unigram or BPE
//   another *.json                   a tokenizer.json with a BPE or unigram model; another part is
//                                    refused by name
//   bpe:N                            refused: learn_tokenizer() makes the folder
// clang-format on
// A tokenizer.json's added tokens and SentencePiece's user-defined pieces are recognised in text,
// as their own libraries do. With the other kinds all text is ordinary text. End-of-text is the
// eos_token of the folder's special_tokens_map.json or tokenizer_config.json, the eos_token_id of
// its generation_config.json, else config.json, or a customary name in the file, as <|endoftext|>.
// If no file has one, end-of-text is a new last id, with a warning. Throws ConfigError if the spec
// or a part of the file cannot be used, IoError if a file cannot be read or is damaged.
[[nodiscard]] std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec);

}  // namespace sluice
