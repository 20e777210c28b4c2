#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "runtime/checkpoint/hf/hf_config.hpp"
#include "tests/fuzz/targets.hpp"

namespace sluice::testing {

void fuzz_config(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  try {
    const ModelOptions model = parse_hf_config("fuzz", text);
    if (model.layers <= 0 || model.hidden <= 0 || model.heads <= 0 || model.vocab <= 0)
      std::abort();
    // What was accepted is written, and read as the same model.
    const ModelOptions again = parse_hf_config("again", write_hf_config(model, "float32"));
    if (again.layers != model.layers || again.hidden != model.hidden ||
        again.kv_heads != model.kv_heads || again.ffn != model.ffn || again.type != model.type) {
      std::abort();
    }
  } catch (const Error&) {
    return;  // IoError: no config.json; ConfigError: of what is not built, or cannot be written
  }
}

}  // namespace sluice::testing
