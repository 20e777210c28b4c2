// Documents of a packed micro-batch: each row of tokens holds one document or several. Positions
// restart in each document, and attention stays inside a document. Made once for a micro-batch;
// units find it in UnitCall::documents. Not thread-safe, as units.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sluice {

// Consecutive documents of a micro-batch that one call of a GPU's attention operator takes. Tokens
// are numbered through all rows.
struct DocumentGroup {
  std::int64_t first = 0;  // token
  std::int64_t tokens = 0;
  std::int64_t documents = 0;
  std::int64_t longest = 0;  // document, in tokens
  at::Tensor bounds{};       // int32 [documents + 1], from 0, on the device
};

class Documents {
 public:
  // Tokens [first, first + count) of a row.
  struct Span {
    std::int64_t first = 0;
    std::int64_t count = 0;
  };

  // bounds: of each row 0, the end of each document, seq (SampleRows::cu_seqlens). Throws Error
  // unless these increase from 0 to seq.
  Documents(std::span<const std::vector<std::int32_t>> bounds, std::int64_t seq);
  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(rows_.size()); }
  [[nodiscard]] std::int64_t seq() const { return seq_; }
  [[nodiscard]] const std::vector<Span>& of_row(std::int64_t row) const;

  // Writes the position of each token in its document, rows x seq.
  void write_positions(std::int64_t* to) const;

  // --- for a GPU: computed at the first call, then kept there ---
  // The same positions: int64 [rows x seq].
  [[nodiscard]] const at::Tensor& positions(const at::Device& device) const;
  // The documents in groups of at most `most_documents`. With `padded`, documents x longest of a
  // group is at most rows x seq besides, for an operator whose results have a row for each.
  [[nodiscard]] const std::vector<DocumentGroup>& groups(const at::Device& device,
                                                         bool padded) const;
  // Largest number of documents of a group: the scratch of flash attention's backward grows by 128
  // tokens a document, so that it stays below twice that of a micro-batch of whole rows.
  [[nodiscard]] static std::int64_t most_documents(std::int64_t tokens) { return 1 + tokens / 256; }
  // Bytes that the functions above keep on a GPU, at most.
  [[nodiscard]] static std::int64_t device_bytes(std::int64_t rows, std::int64_t seq);

 private:
  std::int64_t seq_ = 0;
  std::vector<std::vector<Span>> rows_;
  mutable at::Tensor positions_;
  mutable std::optional<std::vector<DocumentGroup>> groups_;
};

// Calls f(span) for each document of a row of `seq` tokens. Without documents the row is one.
template <class Fn>
void for_documents(const Documents* documents, std::int64_t row, std::int64_t seq, const Fn& f) {
  if (documents == nullptr) return f(Documents::Span{0, seq});
  for (const Documents::Span& span : documents->of_row(row)) f(span);
}

struct UnitCall;

// Throws Error if the call's documents are of other rows than `rows` of `seq` tokens.
void check_documents(const UnitCall& call, std::int64_t rows, std::int64_t seq);

}  // namespace sluice
