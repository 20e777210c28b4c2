// Parameters that a run does not train (train.freeze).
//
// A pattern follows a parameter's name component by component: "h.0-3.attn.*.weight". A component
// is a name, in which * and ? stand for other characters as in a shell, or a range of numbers. A
// pattern with fewer components names all parameters below it: "h.0-3", "wte".
//
// Pure; thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "runtime/model/model_spec.hpp"

namespace sluice {

[[nodiscard]] bool names_parameter(std::string_view pattern, std::string_view param);

// Throws ConfigError if a pattern names no parameter of `whole`, or if nothing is left to train.
void check_freeze(std::span<const std::string> patterns, const ModelSpec& whole);

// Makes groups of their own of the parameters that spec.options.freeze names.
void freeze_groups(ModelSpec& spec);

}  // namespace sluice
