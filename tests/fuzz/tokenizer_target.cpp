#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "runtime/data/tokenizer/bpe_files.hpp"
#include "tests/fuzz/targets.hpp"

namespace sluice::testing {

void fuzz_tokenizer(std::span<const std::byte> bytes) {
  static const int file = ::memfd_create("tokenizer.json", MFD_CLOEXEC);
  const auto size = static_cast<ssize_t>(bytes.size());
  if (file < 0 || ::ftruncate(file, 0) != 0 ||
      ::pwrite(file, bytes.data(), bytes.size(), 0) != size) {
    std::abort();
  }
  try {
    const auto tokenizer = read_tokenizer_json("/proc/self/fd/" + std::to_string(file));
    // Whatever a text becomes, the tokens are of the vocabulary.
    for (const std::int32_t token : tokenizer->encode("ab  a\xC3\xA9\n0")) {
      if (token < 0 || token >= tokenizer->vocab_size()) std::abort();
    }
  } catch (const Error&) {
    return;
  }
}

}  // namespace sluice::testing
