#include "tests/runtime/engine/packed/packed_batches.hpp"

#include "kernels/cpu/softmax_cross_entropy.hpp"

namespace sluice::testing {
namespace {

// The ends of row r's documents: one, two, one of a token, and last an unused one.
std::vector<std::int32_t> ends_of_row(std::int64_t row) {
  const std::vector<std::int32_t> layouts[] = {{0, 24}, {0, 5, 24}, {0, 1, 7, 24}, {0, 9, 20, 24}};
  return layouts[row % 4];
}

struct Document {
  std::int64_t row, first, count;

  // A third is context, and nothing of an unused one is learned.
  [[nodiscard]] bool learns(std::int64_t position) const {
    return (row % 4 != 3 || first != 20) && position >= count / 3;
  }
};

std::vector<Document> all_documents() {
  std::vector<Document> all;
  for (std::int64_t row = 0; row < kPackedRows; ++row) {
    const std::vector<std::int32_t> ends = ends_of_row(row);
    for (std::size_t i = 0; i + 1 < ends.size(); ++i) {
      all.push_back({row, ends[i], ends[i + 1] - ends[i]});
    }
  }
  return all;
}

std::int64_t all_learned() {
  std::int64_t learned = 0;
  for (const Document& d : all_documents()) {
    for (std::int64_t i = 0; i < d.count; ++i) learned += d.learns(i) ? 1 : 0;
  }
  return learned;
}

// Puts a document at the token `at` of the output.
void put(const Document& d, std::int64_t batch, SampleRows& out, std::int64_t at) {
  for (std::int64_t i = 0; i < d.count; ++i) {
    const auto word = [&](std::int64_t s) {
      return (batch * 17 + d.row * 7 + (d.first + s) * (3 + d.row)) % kPackedWords;
    };
    out.tokens[static_cast<std::size_t>(at + i)] = word(i);
    out.targets[static_cast<std::size_t>(at + i)] = d.learns(i) ? word(i + 1) : kIgnoreTarget;
  }
}

void clear_rows(SampleRows& out, std::int64_t rows) {
  out.tokens.assign(static_cast<std::size_t>(rows * kPackedSeq), 0);
  out.targets.assign(out.tokens.size(), kIgnoreTarget);
  out.cu_seqlens.clear();
  out.learned_targets = all_learned();
}

}  // namespace

void packed_rows(std::int64_t batch, std::int64_t first, std::int64_t rows, SampleRows& out) {
  clear_rows(out, rows);
  for (std::int64_t r = first; r < first + rows; ++r) out.cu_seqlens.push_back(ends_of_row(r));
  for (const Document& d : all_documents()) {
    if (d.row < first || d.row >= first + rows) continue;
    put(d, batch, out, (d.row - first) * kPackedSeq + d.first);
  }
}

void unpacked_rows(std::int64_t batch, std::int64_t first, std::int64_t rows, SampleRows& out) {
  clear_rows(out, rows);
  for (std::int64_t r = first; r < first + rows; ++r) {
    put(all_documents()[static_cast<std::size_t>(r)], batch, out, (r - first) * kPackedSeq);
  }
}

std::int64_t packed_documents() { return std::ssize(all_documents()); }

EngineOptions packed_world(bool mistral) {
  EngineOptions options = tiny_options();
  options.model = {.layers = 3, .hidden = 32, .heads = 4, .vocab = kPackedWords, .seq = kPackedSeq};
  if (mistral) {
    options.model.type = ModelType::kMistral;
    options.model.kv_heads = 2;
    options.model.ffn = 48;
    options.model.sliding_window = 6;
    options.model.tie_embeddings = false;
  }
  options.model.packed_rows = true;
  options.train.micro_batch = 1;
  options.train.global_batch = kPackedRows;
  options.optimizer.lr = 1e-3;
  return options;
}

}  // namespace sluice::testing
