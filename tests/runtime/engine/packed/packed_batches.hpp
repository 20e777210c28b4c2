// A global batch of packed rows, and the same documents in rows of their own.
#pragma once

#include <vector>

#include "tests/runtime/engine/world.hpp"

namespace sluice::testing {

constexpr std::int64_t kPackedSeq = 24, kPackedWords = 61, kPackedRows = 6;

// kPackedRows rows a global batch, of one to three documents: a part is context, one is unused.
void packed_rows(std::int64_t batch, std::int64_t first, std::int64_t rows, SampleRows& out);
// A row for each document, whose end is not learned: packed_documents() rows a global batch.
void unpacked_rows(std::int64_t batch, std::int64_t first, std::int64_t rows, SampleRows& out);
[[nodiscard]] std::int64_t packed_documents();

// Three layers over these rows: a gpt2, or a mistral with a window of 6 and shared key heads.
[[nodiscard]] EngineOptions packed_world(bool mistral);

}  // namespace sluice::testing
