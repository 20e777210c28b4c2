#include "runtime/engine/access/frozen_rounding.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/index.hpp"
#include "base/log.hpp"
#include "kernels/cpu/cast.hpp"
#include "parallel/comm/text_exchange.hpp"
#include "runtime/model/model_spec.hpp"

namespace sluice {
namespace {

constexpr std::size_t kElemsAtOnce = 16384;

bool differs(float value, float rounded) { return !std::isnan(value) && value != rounded; }

}  // namespace

bool FrozenRounding::may_change(int group) const {
  return dtype_ != DType::kFloat32 && !changes_ && nth(spec_.groups, group).frozen;
}

void FrozenRounding::look_at(int group, std::span<const float> values) {
  if (!may_change(group)) return;
  std::vector<std::uint16_t> narrow(std::min(kElemsAtOnce, values.size()));
  std::vector<float> rounded(narrow.size());
  while (!values.empty() && !changes_) {
    const std::span<const float> part = values.first(std::min(narrow.size(), values.size()));
    convert(narrow.data(), dtype_, part.data(), DType::kFloat32, std::ssize(part));
    convert(rounded.data(), DType::kFloat32, narrow.data(), dtype_, std::ssize(part));
    for (std::size_t i = 0; i < part.size(); ++i) {
      changes_ = changes_ || differs(part[i], rounded[i]);
    }
    values = values.subspan(part.size());
  }
}

InitialWeights FrozenRounding::watched(int group, const InitialWeights& source) {
  if (!source || !may_change(group)) return source;
  return
      [this, group, &source](const std::string& name, std::int64_t begin, std::span<float> values) {
        const std::int64_t had = source(name, begin, values);
        look_at(group, values.first(static_cast<std::size_t>(had)));
        return had;
      };
}

void FrozenRounding::warn(Communicator& comm, const std::string& source) const {
  if (dtype_ == DType::kFloat32 || spec_.options.freeze.empty()) return;
  if (!on_any_rank(comm, changes_) || comm.rank() != 0) return;
  const std::string dtype(name_of(dtype_));
  log_warning("train.freeze: the frozen weights of " + source + " change by rounding to " + dtype +
              ", in which the run keeps them: its checkpoints and exports hold the rounded values. "
              "To keep the values, train with train.dtype: fp32");
}

}  // namespace sluice
