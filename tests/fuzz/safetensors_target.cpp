#include <cstdint>
#include <cstdlib>
#include <vector>

#include "runtime/checkpoint/format/safetensors.hpp"
#include "tests/fuzz/targets.hpp"

namespace sluice::testing {

void fuzz_safetensors(std::span<const std::byte> bytes) {
  const auto size = static_cast<std::int64_t>(bytes.size());
  try {
    const SafetensorsHeader header = parse_safetensors_header(bytes, size, "fuzz");
    // Accepted: every byte is of the header or of one tensor, and a header made of it says the
    // same.
    std::int64_t end = header.header_bytes;
    std::vector<TensorDecl> decls;
    for (const TensorEntry& entry : header.tensors) {
      if (entry.offset != end || entry.bytes < 0 || entry.bytes > size - end) std::abort();
      end += entry.bytes;
      decls.push_back({entry.name, entry.dtype, entry.shape});
    }
    if (end != size) std::abort();
    const SafetensorsLayout layout = plan_safetensors(decls, header.metadata);
    const SafetensorsHeader again = parse_safetensors_header(
        std::as_bytes(std::span(layout.header)), layout.file_bytes, "again");
    if (again.tensors.size() != decls.size() || again.metadata != header.metadata) std::abort();
  } catch (const CheckpointError&) {
    return;
  }
}

}  // namespace sluice::testing
