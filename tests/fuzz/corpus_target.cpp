#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/error.hpp"
#include "runtime/data/corpus/corpus_record.hpp"
#include "runtime/data/corpus/dedupe/normal_forms.hpp"
#include "runtime/data/corpus/filters/text_parts.hpp"
#include "runtime/data/corpus/repair/repair.hpp"
#include "runtime/data/tokenizer/utf8.hpp"
#include "tests/fuzz/targets.hpp"

namespace sluice::testing {
namespace {

bool is_utf8(std::string_view text) { return valid_utf8_prefix(text) == text.size(); }

// The lines that stay and those that do not, of units of `unit_bytes`.
std::string lines_of(const std::vector<CorpusFile>& files, std::int64_t unit_bytes) {
  std::string all;
  for (const CorpusUnit& unit : plan_units(files, unit_bytes)) {
    UnitReader reader(files, unit, {.batch_bytes = 16, .longest_bytes = 200});
    while (const auto batch = reader.next()) {
      for (const RawRecord& raw : batch->records) {
        const CorpusRecord record = parse_record(raw, batch->of(raw), {});
        if (!is_utf8(record.text) || !is_utf8(normal_text(record.text))) std::abort();
        (void)normal_url(record.text);
        if (!record.reason.empty()) {
          append_rejected(raw, batch->of(raw), record, "\"reason\": \"x\"", all);
          continue;
        }
        const std::string repaired = repair_text(record.text);
        if (!is_utf8(repaired)) std::abort();
        std::string line;
        append_record(raw, batch->of(raw), record, repaired, line);
        // The line that was written reads back.
        const RawRecord again{.begin = 0, .end = line.size() - 1, .line = true};
        const CorpusRecord back =
            parse_record(again, std::string_view(line).substr(0, line.size() - 1), {});
        if (back.text != repaired) std::abort();
        all += line;
      }
    }
  }
  return all;
}

}  // namespace

void fuzz_corpus(std::span<const std::byte> bytes) {
  static const int file = ::memfd_create("corpus", MFD_CLOEXEC);
  const auto size = static_cast<ssize_t>(bytes.size());
  if (file < 0 || ::ftruncate(file, 0) != 0 ||
      ::pwrite(file, bytes.data(), bytes.size(), 0) != size) {
    std::abort();
  }
  CorpusFile input{.file = {.path = "/proc/self/fd/" + std::to_string(file), .size_bytes = size}};
  try {
    input.packed = packing_of(input.file) != Packing::kNone;
    for (const bool lines : {true, false}) {
      input.lines = lines;
      const std::string whole = lines_of({input}, 1 << 20);
      if (lines_of({input}, 5) != whole) std::abort();
    }
  } catch (const IoError&) {
    // A damaged packed file.
  }
}

}  // namespace sluice::testing
