#include "runtime/engine/ops/grad_sinks.hpp"

#include "runtime/model/empty_tensor.hpp"

namespace sluice {

GradTarget GroupSink::target(int index) {
  const ParamRef& ref = unit_.params[static_cast<std::size_t>(index)];
  GroupState& group = store_.group(ref.group);
  const auto i = static_cast<std::size_t>(ref.index);
  const bool add = group.grad_written[i];
  group.grad_written[i] = true;
  return {group.grads[i], add};
}

GradTarget SplitSink::target(int index) {
  const at::Tensor& param = params_[static_cast<std::size_t>(index)];
  early_.emplace_back(index, empty_tensor(param.sizes(), c10::ScalarType::Float, param.device()));
  return {early_.back().second, false};
}

}  // namespace sluice
