// Cuts the files of a corpus into units. A unit is the smallest part of the work that is finished
// or not: its output appears whole. The cut depends on the files and `unit_bytes` alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/data/text_files.hpp"

namespace sluice {

struct CorpusFile {
  TextFile file;
  bool lines = false;   // JSON lines, else one document
  bool packed = false;  // a packed file is not cut
};

// Bytes [begin, end) of a file as it is on disk. Of JSON lines: the lines whose first byte lies in
// the range.
struct FilePart {
  std::size_t file = 0;
  std::int64_t begin = 0, end = 0;
};

struct CorpusUnit {
  std::vector<FilePart> parts;
  std::int64_t bytes = 0;
};

// Small files share a unit; a file of JSON lines that is not packed is cut every `unit_bytes`.
// Empty files are left out.
[[nodiscard]] std::vector<CorpusUnit> plan_units(std::span<const CorpusFile> files,
                                                 std::int64_t unit_bytes);

}  // namespace sluice
