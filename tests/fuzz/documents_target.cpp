#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/error.hpp"
#include "runtime/data/document_reader.hpp"
#include "runtime/data/tokenizer/utf8.hpp"
#include "tests/fuzz/targets.hpp"

namespace sluice::testing {
namespace {

void read_as(TextFormat format, const std::string& path, std::span<const std::byte> bytes) {
  const std::string_view content(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const TextFile file{.path = path,
                      .size_bytes = static_cast<std::int64_t>(bytes.size()),
                      .named = true,
                      .format = format};
  std::string all;
  std::int64_t ended = 0;
  try {
    const ReadResult result = read_documents(file, {.piece_bytes = 64}, [&](DocumentPiece&& piece) {
      // A JSON line is text or an error, never bytes.
      if (piece.line > 0 && valid_utf8_prefix(piece.text) != piece.text.size()) std::abort();
      ended += piece.ends_document;
      if (piece.line == 0) all += piece.text;
    });
    if (result.documents != ended) std::abort();
  } catch (const IoError&) {
    return;
  }
  const bool packed = content.starts_with("\x1F\x8B");
  if (format == TextFormat::kPlain && !packed && all != content) std::abort();
}

}  // namespace

void fuzz_documents(std::span<const std::byte> bytes) {
  static const int file = ::memfd_create("documents", MFD_CLOEXEC);
  const auto size = static_cast<ssize_t>(bytes.size());
  if (file < 0 || ::ftruncate(file, 0) != 0 ||
      ::pwrite(file, bytes.data(), bytes.size(), 0) != size) {
    std::abort();
  }
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  for (const TextFormat format : {TextFormat::kPlain, TextFormat::kJsonLines, TextFormat::kJson}) {
    read_as(format, path, bytes);
  }
}

}  // namespace sluice::testing
