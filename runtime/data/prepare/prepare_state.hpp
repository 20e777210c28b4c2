// The record with which an interrupted preparation goes on: what of the input is written, and where
// the outputs stand. A text file PREFIX.prepare that is replaced as a whole. Pure but for the
// files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/data/prepare/indexed_writer.hpp"

namespace sluice {

struct PrepareState {
  std::string request;           // hash of the inputs and options; another one begins again
  std::int64_t file = 0;         // index of the input in progress
  std::int64_t items = 0;        // lines or pieces of this input that are written
  std::int64_t input_bytes = 0;  // for the progress line
  std::int64_t empty = 0;        // documents without a token
  bool finishing = false;        // all is written; the indexes may be missing
  std::vector<WriterPosition> outputs;
};

[[nodiscard]] std::string write_prepare_state(const PrepareState& state);
// Nothing if the text is damaged.
[[nodiscard]] std::optional<PrepareState> read_prepare_state(const std::string& text);

}  // namespace sluice
