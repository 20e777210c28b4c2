#include "runtime/engine/ops/grad_sinks.hpp"

#include "base/index.hpp"
#include "runtime/model/empty_tensor.hpp"

namespace sluice {

const at::Tensor& GroupSink::gradient(int index) const {
  const ParamRef& ref = nth(unit_.params, index);
  return nth(store_.group(ref.group).grads, ref.index);
}

GradTarget GroupSink::target(int index) {
  const ParamRef& ref = nth(unit_.params, index);
  GroupState& group = store_.group(ref.group);
  const auto i = static_cast<std::size_t>(ref.index);
  const bool add = group.grad_written[i];
  group.grad_written[i] = true;
  return {group.grads[i], add};
}

GradTarget SplitSink::target(int index) {
  const at::Tensor& whole = whole_.gradient(index);
  if (!whole.defined()) return {};
  early_.emplace_back(index, empty_tensor(whole.sizes(), c10::ScalarType::Float, whole.device()));
  return {early_.back().second, false};
}

}  // namespace sluice
