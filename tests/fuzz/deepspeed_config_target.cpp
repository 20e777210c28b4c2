#include <cstdlib>
#include <string>
#include <string_view>

#include "configs/migrate/deepspeed/deepspeed_config.hpp"
#include "tests/fuzz/targets.hpp"

namespace sluice::testing {

void fuzz_deepspeed_config(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const migrate::HjsonDocument document = migrate::read_hjson(text);
  if (!document.problems.empty()) {
    for (const migrate::HjsonProblem& problem : document.problems) {
      if (problem.line < 1 || problem.column < 1 || problem.what.empty()) std::abort();
    }
    return;
  }
  // What was read is written as JSON, and read as the same values.
  const std::string json = migrate::to_json(document.root);
  const migrate::HjsonDocument again = migrate::read_hjson(json);
  if (again.problems.empty() ? migrate::to_json(again.root) != json
                             : json.size() < migrate::kMaxHjsonBytes) {
    std::abort();
  }
  for (const migrate::DeepSpeedVersion& version :
       {migrate::kNewestDeepSpeed, migrate::DeepSpeedVersion{0, 14, 0}}) {
    const migrate::DeepSpeedConfig config =
        migrate::parse_deepspeed(document.root, {.version = version, .world = 4});
    // No key is passed over in silence.
    if (config.findings.size() < document.root.entries.size() && config.mistakes.empty()) {
      for (const migrate::HjsonEntry& entry : document.root.entries) {
        const bool is_section = entry.value.kind == migrate::HjsonNode::Kind::kObject;
        if (!is_section) continue;
        bool found = entry.value.entries.empty();
        for (const migrate::Finding& finding : config.findings) {
          found = found || finding.path.starts_with(entry.key);
        }
        if (!found) std::abort();
      }
    }
    (void)config.error_text("fuzz");
  }
}

}  // namespace sluice::testing
