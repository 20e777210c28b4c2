// Documents of a packed micro-batch: each row of tokens holds one document or several. Positions
// restart in each document, and attention stays inside a document. Made once for a micro-batch;
// units find it in UnitCall::documents. Not thread-safe, as units.
//
// A GPU's kernels read positions and ends of documents from device memory. The memory's size and
// the shapes of calls depend on the rows' number and length and on room() alone, so a recorded
// kernel (engine/ops/step_graphs.hpp) serves every batch whose documents have been put there.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

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

  // --- for a GPU ---

  // Documents that calls of attention are made for: the number of documents, rounded up to a power
  // of two. Those behind the last one are empty; their blocks end at once.
  [[nodiscard]] std::int64_t room() const { return room_; }
  // Makes room() at least `room`, a room() of other documents.
  void widen(std::int64_t room);

  // Memory for the documents of any such rows, and its bytes.
  [[nodiscard]] static at::Tensor device_memory(std::int64_t rows, std::int64_t seq,
                                                at::Device device);
  [[nodiscard]] static std::int64_t device_bytes(std::int64_t rows, std::int64_t seq);
  // Writes to a device_memory(), behind what the current stream has. Does not wait.
  void put_on(const at::Tensor& memory) const;

  // The first call of these takes memory on `device`, unless put_on() was called.
  // The positions above: int64 [rows x seq].
  [[nodiscard]] const at::Tensor& positions(const at::Device& device) const;
  // Of documents [first, first + count), counted through all rows: int32 [count + 1], the first
  // token of each and the end of the last, numbered through all rows. Behind the last document all
  // are rows x seq. REQUIRES: first + count <= max(rows x seq, kFewest), rounded up to a power of
  // two.
  static constexpr std::int64_t kFewest = 16;
  [[nodiscard]] at::Tensor ends(const at::Device& device, std::int64_t first,
                                std::int64_t count) const;

 private:
  void put_on_device(const at::Device& device) const;
  void write_ends(std::span<std::int32_t> to) const;

  std::int64_t seq_ = 0;
  std::vector<std::vector<Span>> rows_;
  std::int64_t room_ = 0;
  mutable at::Tensor positions_;
  mutable at::Tensor ends_;  // of all
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
