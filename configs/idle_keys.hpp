// Given keys that other keys leave without effect. An override or a machine's base: file often
// leaves such a key: `--set train.eval_steps=0` over a file with eval_every. The key is then a
// note. A key that the run would contradict is a broken rule (validate.hpp).
#pragma once

#include "configs/reader.hpp"

namespace sluice {

// Adds a line to config.notes for each such key: "place: key: no effect: why". Readers of the key
// then see its default. Pure; thread-safe.
void settle_idle_keys(LoadedConfig& config);

}  // namespace sluice
