// Whether weights that are read for frozen parameters (train.freeze) change by rounding. A 16-bit
// run keeps frozen weights in its dtype alone, without fp32 master weights, so checkpoints and
// exports hold the rounded values. Weights that are drawn do not count: no source has other values.
// Not thread-safe.
#pragma once

#include <span>
#include <string>

#include "base/dtype.hpp"
#include "runtime/engine/initial_weights.hpp"

namespace sluice {

class Communicator;
struct ModelSpec;

class FrozenRounding {
 public:
  // `spec`: of this rank's model; outlives the object. `dtype`: train.dtype.
  FrozenRounding(const ModelSpec& spec, DType dtype) : spec_(spec), dtype_(dtype) {}

  // `values` have been read for parameters of `group`. A NaN does not count.
  void look_at(int group, std::span<const float> values);
  // `source`, whose values for `group` are looked at. Borrows this object and `source`.
  [[nodiscard]] InitialWeights watched(int group, const InitialWeights& source);
  // Forgets what was read: all weights are read again, from another source.
  void forget() { changes_ = false; }
  // Rank 0 warns if weights change on any rank. `source`: names the weights' folder. Collective,
  // unless no parameter of the model is frozen or `dtype` is fp32.
  void warn(Communicator& comm, const std::string& source) const;

 private:
  [[nodiscard]] bool may_change(int group) const;

  const ModelSpec& spec_;
  const DType dtype_;
  bool changes_ = false;
};

}  // namespace sluice
