// Repairs text: mojibake, HTML's character references, ligatures, full-width letters, curly quotes,
// line ends, terminal escapes, control characters. The rules are those of ftfy 6.3 with its
// defaults. Each line is repaired by itself. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

struct RepairOptions {
  bool html = true;  // until the first '<': a text with tags is HTML that is meant
  bool encoding = true;
  bool c1_controls = true;
  bool ligatures = true;
  bool width = true;
  bool quotes = true;
  bool line_breaks = true;
  bool terminal_escapes = true;
  bool controls = true;
  bool nfc = true;
};

// REQUIRES: valid UTF-8. The result is valid UTF-8.
[[nodiscard]] std::string repair_text(std::string_view text, const RepairOptions& options = {});

}  // namespace sluice
