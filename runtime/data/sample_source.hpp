// The samples of one part of the data, by number. Immutable after construction; thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/data/token_source.hpp"

namespace sluice {

// A row that is to be filled: seq tokens, seq targets.
struct SampleRow {
  std::span<std::int64_t> tokens, targets;
  // 0, the end of each document, seq. Null: the sample's documents are not told apart.
  std::vector<std::int32_t>* ends = nullptr;
};

class SampleSource {
 public:
  virtual ~SampleSource() = default;
  [[nodiscard]] virtual std::int64_t samples() const = 0;
  // Fills the row and returns the position of its first token, for messages.
  // REQUIRES: 0 <= sample < samples().
  virtual std::int64_t read(std::int64_t sample, const SampleRow& row) const = 0;
  // The targets of the sample that count in the loss, if its documents are told apart.
  [[nodiscard]] virtual std::int64_t learned(std::int64_t sample) const = 0;
};

// A stream that is cut into samples of seq + 1 tokens; neighbours share their border token. Where
// documents are told apart, the target that crosses a document's end is ignored.
class StreamSamples : public SampleSource {
 public:
  StreamSamples(std::shared_ptr<const TokenSource> source, std::int64_t seq);
  [[nodiscard]] std::int64_t samples() const override;
  std::int64_t read(std::int64_t sample, const SampleRow& row) const override;
  [[nodiscard]] std::int64_t learned(std::int64_t sample) const override;

 private:
  std::shared_ptr<const TokenSource> source_;
  std::int64_t seq_;
};

[[nodiscard]] std::int64_t samples_in(std::int64_t tokens, std::int64_t seq);

// Tells apart the documents of a row that holds `length` tokens of the source from token `first`:
// fills row.ends, and ignores each target that crosses a document's end. The padding behind the
// tokens belongs to the last document. REQUIRES: first + length < source.size().
void tell_documents(const TokenSource& source, std::int64_t first, std::int64_t length,
                    const SampleRow& row);

}  // namespace sluice
