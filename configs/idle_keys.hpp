// Keys that are given and that other keys leave without effect, as an override or a machine's
// base: file often does: `--set train.eval_steps=0` over a file with eval_every. Such a key is a
// note. A key that asks for what the run would not do is a broken rule (validate.hpp).
#pragma once

#include "configs/reader.hpp"

namespace sluice {

// Adds a line to config.notes for each such key: "place: key: no effect: why". Parts of a run that
// would read the key see its default. Pure; thread-safe.
void settle_idle_keys(LoadedConfig& config);

}  // namespace sluice
