// Text to token ids and back. A text is bytes: UTF-8 is what is expected, but nothing else fails or
// loses anything, so decode(encode(x)) == x for every x. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace sluice {

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

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // One more than the largest id encode() or end_of_text() can give. Holes among the ids count.
  [[nodiscard]] virtual std::int64_t vocab_size() const = 0;
  // The id that follows each document.
  [[nodiscard]] virtual std::int32_t end_of_text() const = 0;
  // Throws TokenizeError where a file's split pattern cannot do with its limits.
  [[nodiscard]] virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  // An id that stands for nothing (a hole, a model's padding) becomes U+FFFD; end_of_text() becomes
  // its name, "<|endoftext|>" where it has no other. Ids may cut a character: the bytes come as
  // they are.
  [[nodiscard]] virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  // What its own library puts before a text that a model is to go on from, Llama 3's
  // <|begin_of_text|>; mostly nothing. encode() leaves it out: documents of training have none.
  [[nodiscard]] virtual std::span<const std::int32_t> leading() const { return {}; }
  // For people: "bytes", "gpt2 (/path/vocab.json)".
  [[nodiscard]] virtual const std::string& name() const = 0;
  // Two tokenizers of one fingerprint encode alike.
  [[nodiscard]] virtual const std::string& fingerprint() const = 0;
};

// `spec` is
//   bytes               256 values and an end-of-text, 257 ids;
//   a folder            with tokenizer.json, or vocab.json + merges.txt, or one *.tiktoken file
//   (the first
//                       of these that is there);
//   vocab.json or merges.txt, or *-vocab.json / *-merges.txt, the other one beside it: GPT-2's
//                       byte-level BPE;
//   *.tiktoken or tokenizer.model    lines "base64 rank". Split pattern: GPT-2's below 100 000
//   ranks,
//                       cl100k's (GPT-4, Llama 3) below 190 000, o200k's (GPT-4o) from there;
//   any other *.json    a tokenizer.json whose parts are byte-level BPE; a part that is not is
//   refused by
//                       name. Its added tokens are recognised in the text, as its own library does;
//                       of the other kinds of file everything in the text is ordinary text.
// End-of-text: <|endoftext|>, or the customary name the file has for it, else a new id after the
// last. Throws ConfigError where the spec or a part of the file cannot be used, IoError where a
// file cannot be read or is damaged.
[[nodiscard]] std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec);

}  // namespace sluice
