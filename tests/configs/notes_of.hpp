// What a valid configuration's notes say.
#pragma once

#include <string>
#include <vector>

#include "configs/reader.hpp"
#include "configs/validate.hpp"
#include "tests/configs/scratch.hpp"

namespace sluice::testing {

// The notes of c.yaml, which says `yaml` over base.yaml, with overrides. Needs a Scratch.
inline std::vector<std::string> notes_of(const std::string& yaml,
                                         const std::vector<std::string>& sets,
                                         const std::string& base = "data: {text: a.txt}\n") {
  Scratch::write("base.yaml", base);
  Scratch::write("c.yaml", "base: base.yaml\n" + yaml);
  const LoadedConfig config = load_config("c.yaml", sets);
  validate(config, 1);
  return config.notes;
}

}  // namespace sluice::testing
