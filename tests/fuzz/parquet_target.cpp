#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "runtime/data/byte_source.hpp"
#include "tests/fuzz/targets.hpp"

namespace sluice::testing {

void fuzz_parquet(std::span<const std::byte> bytes) {
  static const int memory = ::memfd_create("parquet", MFD_CLOEXEC);
  const auto size = static_cast<ssize_t>(bytes.size());
  if (memory < 0 || ::ftruncate(memory, 0) != 0 ||
      ::pwrite(memory, bytes.data(), bytes.size(), 0) != size) {
    std::abort();
  }
  const TextFile file{.path = "/proc/self/fd/" + std::to_string(memory),
                      .size_bytes = size,
                      .named = true,
                      .format = TextFormat::kParquet};
  for (const std::vector<std::string>& columns : {std::vector<std::string>{}, {"text"}}) {
    std::array<char, 4096> chunk{};
    char last = '\n';
    try {
      const auto source = open_bytes(file, columns);
      // A few bytes of a dictionary may stand for any number of rows.
      for (std::size_t all = 0; !source->at_end() && all < (16U << 20U);) {
        const std::size_t count = source->read(chunk);
        if (count > 0) last = chunk[count - 1];
        all += count;
        if (source->used_bytes() < 0 || source->used_bytes() > size) std::abort();
        if (source->at_end() && last != '\n') std::abort();  // the last line ends
      }
    } catch (const IoError&) {
      continue;
    }
  }
}

}  // namespace sluice::testing
