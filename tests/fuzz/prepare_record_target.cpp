#include <cstdlib>
#include <string>

#include "runtime/data/hash.hpp"
#include "runtime/data/prepare/prepare_state.hpp"
#include "tests/fuzz/targets.hpp"

namespace sluice::testing {

void fuzz_prepare_record(std::span<const std::byte> bytes) {
  const std::string body(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (read_prepare_state(body)) std::abort();  // no checksum
  Hasher hasher;
  hasher.add(body);
  const std::string whole = body + hasher.digest_hex() + "\n";
  const auto state = read_prepare_state(whole);
  if (!state) return;
  if (write_prepare_state(*state) != whole || state->file < 0 || state->items < 0) std::abort();
  for (const WriterPosition& at : state->outputs) {
    if (at.bin_bytes < 0 || at.lengths_bytes < 0) std::abort();
  }
}

}  // namespace sluice::testing
