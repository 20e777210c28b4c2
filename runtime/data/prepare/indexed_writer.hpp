// Writes Megatron's .bin/.idx pair, byte for byte as its preprocess_data does (indexed_dataset.hpp
// has the format). Memory does not grow with the corpus, and a killed writer can go on.
//
//   PREFIX.bin.part      the tokens so far
//   PREFIX.lengths.part  i32 a document: its number of sequences, then their lengths
//   finish(): .bin.part becomes .bin, .lengths.part becomes the columns of .idx and goes
//
// A document without sequences keeps its place in the index. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/posix/descriptor.hpp"
#include "runtime/data/token_source.hpp"

namespace sluice {

// Where a writer stands after a sync.
struct WriterPosition {
  std::int64_t bin_bytes = 0, lengths_bytes = 0;
  std::int64_t documents = 0, tokens = 0;
  std::int64_t open_tokens = 0;  // of the document that has not ended
};

class IndexedWriter {
 public:
  // Goes on at `from`; bytes of the parts behind it are cut off. Throws IoError: a part cannot be
  // made, or is shorter than `from`.
  IndexedWriter(const std::string& prefix, TokenType type, const WriterPosition& from = {});

  // Appends tokens, stored as the type, to the document that has not ended.
  void append(std::span<const std::byte> tokens);
  // Ends the document as one sequence, or as none if it has no tokens.
  void end_document();
  // Ends the document as sequences of these lengths, whose sum is its tokens.
  void end_document(std::span<const std::int32_t> lengths);

  [[nodiscard]] const WriterPosition& position() const { return at_; }
  // Brings all bytes to the disk.
  WriterPosition sync();
  // Syncs, and makes both files of the parts.
  void finish();

  // The second half of finish(), for the process after one that was killed in finish(). Does
  // nothing if the files are complete.
  static void complete(const std::string& prefix, TokenType type);

 private:
  struct Part {
    std::string path;
    Descriptor file;
    std::vector<std::byte> buffer{};

    void append(std::span<const std::byte> bytes);
    void flush();
    void sync();
  };
  static Part open_part(const std::string& path, std::int64_t bytes);

  std::string prefix_;
  TokenType type_;
  WriterPosition at_;
  Part bin_, lengths_;
};

// Throws ConfigError if a file of the pair exists: "data <command>: ...".
void check_new_pair(const std::string& command, const std::string& prefix);

// The type that Megatron takes for a vocabulary: uint16 below 65 500 ids, else int32.
[[nodiscard]] TokenType token_type_of(std::int64_t vocab);
// Ids in that type: uint16 or int32.
void store_tokens(TokenType type, std::span<const std::int32_t> ids, std::vector<std::byte>& out);

}  // namespace sluice
