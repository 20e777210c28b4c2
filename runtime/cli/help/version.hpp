// The text of `sluice --version`: what this program was made from, and what it uses on this
// machine.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

struct BuiltCommit {
  std::string_view name;  // twelve hex digits; empty: made outside of a git checkout
  bool changed = false;   // a source differed from the commit
};
// In a source of its own (cmake/built_commit.cmake), so that a new commit compiles nothing else.
[[nodiscard]] BuiltCommit built_commit();

struct BuildFacts {
  std::string_view version;   // 0.1.0
  std::string_view type;      // Release
  std::string_view sanitize;  // empty: none
  std::string_view compiler;
  std::string_view torch;    // 2.11.0+cu130
  std::string_view toolkit;  // CUDA toolkit of the module, 13.0.48; empty: no module was built
  std::string_view architectures;  // 80 89 90
  std::string_view no_module;      // the reason
};
[[nodiscard]] BuildFacts build_facts();

// Loads the CUDA module where a GPU is visible.
[[nodiscard]] std::string version_text();

}  // namespace sluice
