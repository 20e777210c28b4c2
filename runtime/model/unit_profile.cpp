#include "runtime/model/unit_profile.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <functional>
#include <mutex>
#include <numeric>

#include "kernels/base/bytes.hpp"
#include "runtime/model/counting_allocator.hpp"
#include "runtime/model/meta_kernels.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

at::Tensor meta(const std::vector<std::int64_t>& shape, c10::ScalarType type) {
  return at::empty(shape, at::TensorOptions().dtype(type).device(c10::DeviceType::Meta));
}

using Shapes = std::vector<std::vector<std::int64_t>>;

// Views of one flat tensor, laid out as a group's (zero/partition_plan.hpp): what runs on
// neighbours at once does so here too.
std::vector<at::Tensor> flat_views(const Shapes& shapes, c10::ScalarType type) {
  const auto elems = [](const std::vector<std::int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  };
  std::vector<std::int64_t> starts;
  std::int64_t end = 0;
  for (const auto& shape : shapes) {
    starts.push_back(round_up(end, kAlignElems));
    end = starts.back() + elems(shape);
  }
  const at::Tensor flat = meta({end}, type);
  std::vector<at::Tensor> views;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    views.push_back(flat.narrow(0, starts[i], elems(shapes[i])).view(shapes[i]));
  }
  return views;
}

class MetaSink final : public GradSink {
 public:
  MetaSink(const Shapes& params, bool accumulate)
      : grads_(flat_views(params, at::kFloat)), accumulate_(accumulate) {}
  GradTarget target(int index) override {
    return {grads_[static_cast<std::size_t>(index)], accumulate_};
  }

 private:
  std::vector<at::Tensor> grads_;
  bool accumulate_;
};

// Bytes since the object was made: what is live more, and the highest it went.
class Watch {
 public:
  Watch() : start_(allocation_count(CountedDevice::kMeta).live) {
    reset_allocation_peak(CountedDevice::kMeta);
  }
  [[nodiscard]] std::int64_t grown() const {
    return allocation_count(CountedDevice::kMeta).live - start_;
  }
  [[nodiscard]] std::int64_t peak() const {
    return allocation_count(CountedDevice::kMeta).peak - start_;
  }

 private:
  std::int64_t start_;
};

std::int64_t bytes_of(const at::Tensor& t) {
  return t.defined() ? t.numel() * static_cast<std::int64_t>(t.element_size()) : 0;
}

UnitMemory profile_inner(Unit& unit, std::span<const at::Tensor> params, const at::Tensor& input,
                         MetaSink& sink) {
  const UnitCall call{.training = true};
  UnitMemory memory;
  {
    const Watch watch;
    const at::Tensor output = unit.forward(call, params, input, nullptr);
    memory.forward_only_peak = watch.peak();
    memory.output = bytes_of(output);
  }
  at::Tensor grad_output = meta({}, input.scalar_type());
  {
    const Watch watch;
    std::unique_ptr<Saved> saved;
    at::Tensor output = unit.forward(call, params, input, &saved);
    memory.forward_peak = watch.peak();
    memory.kept = watch.grown() - memory.output;
    grad_output = meta(output.sizes().vec(), output.scalar_type());
    output.reset();
    const Watch backward;
    const at::Tensor grad_input =
        unit.backward(call, params, input, std::move(saved), grad_output, sink);
    memory.backward_peak = backward.peak();
    memory.input_gradient = bytes_of(grad_input);
  }
  const Watch watch;
  const at::Tensor grad_input = unit.backward(call, params, input, nullptr, grad_output, sink);
  memory.recompute_peak = watch.peak();
  return memory;
}

UnitMemory profile_head(LossHead& head, std::span<const at::Tensor> params, const at::Tensor& input,
                        const at::Tensor& targets, MetaSink& sink) {
  UnitMemory memory;
  memory.scratch = head.scratch_bytes(targets.numel(), dtype_of(input));
  const at::Tensor scratch = meta({memory.scratch}, at::kByte);
  {
    const Watch watch;
    (void)head.loss(params, input, targets, 1.0, scratch, nullptr, nullptr);
    memory.forward_only_peak = watch.peak();
  }
  const Watch watch;
  at::Tensor grad_input;
  (void)head.loss(params, input, targets, 1.0, scratch, &sink, &grad_input);
  memory.backward_peak = watch.peak();
  memory.input_gradient = bytes_of(grad_input);
  return memory;
}

}  // namespace

UnitMemory profile_unit(const Model& model, std::size_t index, const ProfileShape& shape) {
  // The count is the process's: ranks that are threads of it take turns.
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  install_counting_allocators();
  register_meta_kernels();
  const UnitSpec& unit = model.spec.units[index];
  const c10::ScalarType type = scalar_type(shape.dtype);
  Shapes shapes;
  for (const ParamRef& ref : unit.params) {
    const ParamGroup& group = model.spec.groups[static_cast<std::size_t>(ref.group)];
    shapes.push_back(group.params[static_cast<std::size_t>(ref.index)].tensor.shape);
  }
  const std::vector<at::Tensor> params = flat_views(shapes, type);
  const at::Tensor tokens = meta({shape.micro_batch, shape.seq}, at::kLong);
  const at::Tensor hidden = meta({shape.micro_batch, shape.seq, model.spec.options.hidden}, type);
  MetaSink sink(shapes, shape.gradients_add);
  if (unit.kind == UnitKind::kLossHead) {
    return profile_head(*model.head, params, hidden, tokens, sink);
  }
  return profile_inner(*model.units[index], params,
                       unit.kind == UnitKind::kEmbedding ? tokens : hidden, sink);
}

}  // namespace sluice
