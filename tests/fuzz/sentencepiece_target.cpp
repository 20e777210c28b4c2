#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/error.hpp"
#include "runtime/data/tokenizer/sentencepiece_file.hpp"
#include "tests/fuzz/targets.hpp"

namespace sluice::testing {

void fuzz_sentencepiece(std::span<const std::byte> bytes) {
  static const int file = ::memfd_create("tokenizer.model", MFD_CLOEXEC);
  const auto size = static_cast<ssize_t>(bytes.size());
  if (file < 0 || ::ftruncate(file, 0) != 0 ||
      ::pwrite(file, bytes.data(), bytes.size(), 0) != size) {
    std::abort();
  }
  try {
    const auto tokenizer = read_sentencepiece("/proc/self/fd/" + std::to_string(file));
    const auto ids = tokenizer->encode("ab  a\xC3\xA9\n0 \xFF");
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
    }
    (void)tokenizer->decode(ids);
  } catch (const Error&) {
    return;
  }
}

}  // namespace sluice::testing
