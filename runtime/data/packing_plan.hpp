// Packs documents into rows of a fixed number of places. Pure integers; deterministic: the plan is
// a function of lengths and order alone. Thread-safe.
//
// Row: the tokens of one or more documents, end to end, then unused places.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/data_options.hpp"

namespace sluice {

struct PackingOptions {
  std::int64_t seq = 0;        // places of a row
  std::int64_t window = 4096;  // documents that are packed together: the memory of the planner
  Truncation truncation = Truncation::kError;
};

// Part of a row: tokens [0, length) of a document.
struct PackedPart {
  std::int64_t document = 0;  // its index in the order
  std::int64_t length = 0;
  friend bool operator==(const PackedPart&, const PackedPart&) = default;
};

struct PackedRow {
  std::vector<PackedPart> parts;
  std::int64_t used = 0;  // places
  friend bool operator==(const PackedRow&, const PackedRow&) = default;
};

struct PackingCounts {
  std::int64_t documents = 0, rows = 0, tokens = 0;  // that are in rows
  std::int64_t dropped = 0, cut = 0, lost_tokens = 0;
  void add(const PackingCounts& other);
  [[nodiscard]] double used_share(std::int64_t seq) const;  // of the rows' places; 1: no rows
};

struct PackingPlan {
  std::vector<PackedRow> rows;
  std::vector<std::int64_t> dropped, cut;  // documents, in order
  PackingCounts counts;
};

// Best fit decreasing over each window of documents: from the longest to the shortest, a document
// goes to the row with the least space that holds it, of equal ones to the first. A row that is not
// full at a window's end stays open for the next window. Rows are in the order in which they were
// opened, parts in the order of the documents. `lengths`: tokens of the documents in the order of
// the run; an empty document is in no row. Throws ConfigError for a document that is too long
// (kError), naming its index and length.
[[nodiscard]] PackingPlan plan_packing(std::span<const std::int64_t> lengths,
                                       const PackingOptions& options);

}  // namespace sluice
