#include <cstdlib>
#include <string>
#include <string_view>

#include "runtime/checkpoint/format/checkpoint_error.hpp"
#include "runtime/checkpoint/format/manifest.hpp"
#include "runtime/checkpoint/io/checkpoint_load.hpp"
#include "tests/fuzz/targets.hpp"

namespace sluice::testing {
namespace {

std::string with_checksums(std::string text) {
  const auto hash_of = [](const std::string& bytes) {
    return hex64(xxh3(std::as_bytes(std::span(bytes))));
  };
  if (const std::size_t line = text.find('\n'); line != std::string::npos) {
    const std::string head = text.substr(0, line);
    text = head + ",\"head_xxh3\":\"" + hash_of(head) + '"' + text.substr(line);
  }
  const std::string hash = hash_of(text);
  return text + ",\"xxh3\":\"" + hash + "\"}\n";
}

}  // namespace

void fuzz_manifest(std::span<const std::byte> bytes) {
  const std::string text =
      with_checksums({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  try {
    (void)parse_manifest_head(text, "fuzz");
  } catch (const CheckpointError&) {
    // The whole may be refused for another reason, or be good but for a long first line.
  }
  try {
    Manifest manifest = parse_manifest(text, "fuzz");
    // What was accepted comes back as it is.
    const std::string encoded = encode_manifest(manifest);
    if (encode_manifest(parse_manifest(encoded, "again")) != encoded) std::abort();
    check_manifest(manifest, "fuzz");
    const Checkpoint checkpoint(local_file_system(), "fuzz", std::move(manifest));
    for (const StateRange& parameter : checkpoint.parameters()) {
      const auto pieces = checkpoint.plan_reads({&parameter, 1});
      if (pieces.empty()) std::abort();
    }
  } catch (const CheckpointError&) {
    return;
  }
}

}  // namespace sluice::testing
