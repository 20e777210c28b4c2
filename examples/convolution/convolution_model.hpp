// A model of one's own, made of units: a language model of gated causal convolutions (Dauphin et
// al. 2017), no attention anywhere. What it takes: a table of parameters (ModelSpec), a class per
// kind of unit, and nothing else; stages, recomputation, sharding and the memory plan come with the
// engine.
#pragma once

#include "runtime/model/units.hpp"

namespace convolution {

struct Options {
  std::int64_t layers = 4;
  std::int64_t hidden = 64;
  std::int64_t width = 3;  // tokens a convolution sees: this one and those before it
  std::int64_t vocab = 257;
  std::int64_t seq = 64;
};

[[nodiscard]] sluice::Model make_model(const Options& options);

}  // namespace convolution
