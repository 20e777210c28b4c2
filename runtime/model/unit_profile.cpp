#include "runtime/model/unit_profile.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <utility>

#include "base/bytes.hpp"
#include "base/index.hpp"
#include "runtime/model/counting_allocator.hpp"
#include "runtime/model/gpu_path.hpp"
#include "runtime/model/meta_kernels.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

at::Tensor meta(const std::vector<std::int64_t>& shape, c10::ScalarType type) {
  return at::empty(shape, at::TensorOptions().dtype(type).device(c10::DeviceType::Meta));
}

using Shapes = std::vector<std::vector<std::int64_t>>;

// Views in the layout of groups (zero/partition_plan.hpp), so that products over neighbours run as
// in the engine: of one flat tensor of the trained parameters and one of the frozen ones.
std::vector<at::Tensor> flat_views(const Shapes& shapes, const std::vector<bool>& frozen,
                                   c10::ScalarType type) {
  const auto elems = [](const std::vector<std::int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  };
  std::vector<std::int64_t> starts;
  std::array<std::int64_t, 2> ends{};
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    std::int64_t& end = ends[frozen[i] ? 1 : 0];
    starts.push_back(round_up(end, kAlignElems));
    end = starts.back() + elems(shapes[i]);
  }
  const std::array<at::Tensor, 2> flat{meta({ends[0]}, type), meta({ends[1]}, type)};
  std::vector<at::Tensor> views;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    views.push_back(flat[frozen[i] ? 1 : 0].narrow(0, starts[i], elems(shapes[i])).view(shapes[i]));
  }
  return views;
}

class MetaSink final : public GradSink {
 public:
  // `frozen`: by parameter.
  MetaSink(const Shapes& params, std::vector<bool> frozen, const ProfileShape& shape)
      : grads_(flat_views(params, frozen, at::kFloat)),
        frozen_(std::move(frozen)),
        accumulate_(shape.gradients_add),
        splits_(shape.split_backward) {}
  // Gradients that a split backward computes at once also wait for the rest (runtime/engine).
  GradTarget target(int index) override {
    if (nth(frozen_, index)) return {};
    const at::Tensor& grad = nth(grads_, index);
    if (!splits_ || rest_) return {grad, accumulate_};
    early_.push_back(meta(grad.sizes().vec(), at::kFloat));
    return {early_.back(), false};
  }
  std::unique_ptr<Deferred>* deferred() override { return splits_ ? &deferred_ : nullptr; }
  [[nodiscard]] std::unique_ptr<Deferred> take_deferred() { return std::move(deferred_); }
  void begin_rest() { rest_ = true; }
  void end_rest() {
    early_.clear();
    rest_ = false;
  }

 private:
  std::vector<at::Tensor> grads_;
  std::vector<bool> frozen_;
  bool accumulate_;
  bool splits_;
  bool rest_ = false;
  std::vector<at::Tensor> early_;
  std::unique_ptr<Deferred> deferred_;
};

// Bytes since construction: growth of live bytes, and their peak.
class Watch {
 public:
  Watch()
      : start_(allocation_count(CountedDevice::kMeta).live),
        start_small_(allocation_count(CountedDevice::kMetaSmall).live) {
    reset_allocation_peak(CountedDevice::kMeta);
  }
  [[nodiscard]] std::int64_t grown() const {
    return allocation_count(CountedDevice::kMeta).live - start_;
  }
  [[nodiscard]] std::int64_t grown_small() const {
    return allocation_count(CountedDevice::kMetaSmall).live - start_small_;
  }
  [[nodiscard]] std::int64_t peak() const {
    return allocation_count(CountedDevice::kMeta).peak - start_;
  }

 private:
  std::int64_t start_, start_small_;
};

std::int64_t bytes_of(const at::Tensor& t) {
  if (!t.defined()) return 0;
  const std::int64_t bytes = t.numel() * static_cast<std::int64_t>(t.element_size());
  return meta_stands_for_gpu() ? cuda_block_bytes(bytes) : bytes;
}

// The deferred half of a split backward, if any.
void profile_rest(MetaSink& sink, const Watch& before, UnitMemory& memory) {
  const std::unique_ptr<Deferred> rest = sink.take_deferred();
  if (!rest) return sink.end_rest();
  memory.deferred = before.grown();
  const Watch watch;
  sink.begin_rest();
  rest->run(sink);
  memory.weights_peak = watch.peak();
  sink.end_rest();
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
  at::Tensor grad_output;
  const Watch before;
  {
    const Watch watch;
    std::unique_ptr<Saved> saved;
    at::Tensor output = unit.forward(call, params, input, &saved);
    memory.forward_peak = watch.peak();
    memory.kept = watch.grown() - memory.output;
    memory.kept_small = watch.grown_small();
    const bool small_output = meta_stands_for_gpu() && memory.output <= kSmallCudaBlock;
    if (small_output) memory.kept_small -= memory.output;
    grad_output = meta(output.sizes().vec(), output.scalar_type());
    output.reset();
    const Watch backward;
    const at::Tensor grad_input =
        unit.backward(call, params, input, std::move(saved), grad_output, sink);
    memory.backward_peak = backward.peak();
    memory.input_gradient = bytes_of(grad_input);
  }
  const auto sizes = grad_output.sizes().vec();
  const c10::ScalarType type = grad_output.scalar_type();
  grad_output.reset();  // so that `before` sees what the rest of a split backward holds, no more
  profile_rest(sink, before, memory);
  grad_output = meta(sizes, type);
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

namespace {

void prepare_count() {
  install_counting_allocators();
  register_meta_kernels();
}

Shapes param_shapes(const Model& model, std::size_t index) {
  Shapes shapes;
  for (const ParamRef& ref : model.spec.units[index].params) {
    const ParamGroup& group = nth(model.spec.groups, ref.group);
    shapes.push_back(nth(group.params, ref.index).tensor.shape);
  }
  return shapes;
}

// Input of unit `index` for `rows` samples of `seq` tokens: the rank's tokens.
at::Tensor input_of(const Model& model, std::size_t index, std::int64_t rows, std::int64_t seq,
                    DType dtype) {
  if (model.spec.units[index].kind == UnitKind::kEmbedding) return meta({rows, seq}, at::kLong);
  const std::int64_t tokens = model.spec.part.own_tokens(seq);
  return meta({rows, tokens, model.spec.options.hidden}, scalar_type(dtype));
}

}  // namespace

UnitMemory profile_unit(const Model& model, std::size_t index, const ProfileShape& shape) {
  prepare_count();
  const MetaStandsForGpu stands(model.spec.options.on_gpu);
  const Shapes shapes = param_shapes(model, index);
  const std::vector<at::Tensor> params =
      flat_views(shapes, frozen_params(model.spec, index), scalar_type(shape.dtype));
  const at::Tensor input = input_of(model, index, shape.micro_batch, shape.seq, shape.dtype);
  MetaSink sink(shapes, frozen_params(model.spec, index), shape);
  if (model.spec.units[index].kind == UnitKind::kLossHead) {
    const at::Tensor targets = meta({shape.micro_batch, shape.seq}, at::kLong);
    return profile_head(*model.head, params, input, targets, sink);
  }
  return profile_inner(*model.units[index], params, input, sink);
}

namespace {

// Lists the exchanges of a tensor group while it lives.
class ExchangeRecord {
 public:
  explicit ExchangeRecord(TensorGroup& group)
      : group_(group),
        before_(group.watch([this](const TensorGroup::Timed& e) { append(list_, e.what); })) {}
  ExchangeRecord(const ExchangeRecord&) = delete;
  ExchangeRecord& operator=(const ExchangeRecord&) = delete;
  ~ExchangeRecord() { group_.watch(std::move(before_)); }

  // Those since the last call.
  [[nodiscard]] ExchangeList take() { return std::exchange(list_, {}); }

 private:
  TensorGroup& group_;
  ExchangeList list_;
  TensorGroup::Watcher before_;
};

UnitExchanges head_exchanges(const Model& model, std::span<const at::Tensor> params,
                             const at::Tensor& input, const at::Tensor& targets, MetaSink& sink) {
  const at::Tensor scratch =
      meta({model.head->scratch_bytes(targets.numel(), dtype_of(input))}, at::kByte);
  ExchangeRecord record(*model.tensor);
  (void)model.head->loss(params, input, targets, 1.0, scratch, nullptr, nullptr);
  UnitExchanges exchanges{.forward = record.take()};
  at::Tensor grad;
  (void)model.head->loss(params, input, targets, 1.0, scratch, &sink, &grad);
  const ExchangeList all = record.take();
  const auto loss = static_cast<std::ptrdiff_t>(exchanges.forward.size());
  check(all.size() >= exchanges.forward.size() &&
            std::equal(all.begin(), all.begin() + loss, exchanges.forward.begin()),
        "a loss head's exchanges begin with those of the loss");
  exchanges.backward = exchanges.again = {all.begin() + loss, all.end()};
  return exchanges;
}

}  // namespace

UnitExchanges unit_exchanges(const Model& model, std::size_t index, const ProfileShape& shape) {
  if (!model.tensor) return {};
  prepare_count();
  const MetaStandsForGpu stands(model.spec.options.on_gpu);
  const Shapes shapes = param_shapes(model, index);
  const std::vector<at::Tensor> params =
      flat_views(shapes, frozen_params(model.spec, index), scalar_type(shape.dtype));
  const at::Tensor input = input_of(model, index, shape.micro_batch, shape.seq, shape.dtype);
  MetaSink sink(shapes, frozen_params(model.spec, index), shape);
  if (model.spec.units[index].kind == UnitKind::kLossHead) {
    const at::Tensor targets = meta({shape.micro_batch, shape.seq}, at::kLong);
    return head_exchanges(model, params, input, targets, sink);
  }
  Unit& unit = *model.units[index];
  const UnitCall call{.training = true};
  ExchangeRecord record(*model.tensor);
  std::unique_ptr<Saved> saved;
  const at::Tensor output = unit.forward(call, params, input, &saved);
  UnitExchanges exchanges{.forward = record.take()};
  const auto back = [&] {
    (void)unit.backward(call, params, input, std::exchange(saved, nullptr), output, sink);
    return record.take();
  };
  exchanges.backward = back();
  exchanges.again = back();  // nothing is saved any more
  return exchanges;
}

UnitMemory profile_cached_unit(const Model& model, std::size_t index, std::int64_t positions,
                               DType dtype) {
  const std::int64_t remembered = cache_bytes(model, index, positions, dtype);
  prepare_count();
  const MetaStandsForGpu stands(model.spec.options.on_gpu);
  const std::vector<at::Tensor> params =
      flat_views(param_shapes(model, index), frozen_params(model.spec, index), scalar_type(dtype));
  const at::Tensor cache = meta({1, remembered / size_of(dtype)}, scalar_type(dtype));
  UnitMemory memory;
  for (const std::int64_t first : {std::int64_t{0}, positions - 1}) {
    const std::int64_t count = first == 0 ? positions : 1;
    const at::Tensor input = input_of(model, index, 1, count, dtype);
    const Watch watch;
    if (model.spec.units[index].kind == UnitKind::kLossHead) {
      const at::Tensor logits = model.head->logits(params, input, count - 1);
    } else {
      const UnitCall call{.cache = &cache, .first_position = first};
      const at::Tensor output = model.units[index]->forward(call, params, input, nullptr);
      memory.output = std::max(memory.output, bytes_of(output));
    }
    memory.forward_only_peak = std::max(memory.forward_only_peak, watch.peak());
  }
  return memory;
}

std::int64_t cache_bytes(const Model& model, std::size_t index, std::int64_t positions,
                         DType dtype) {
  if (index >= model.units.size()) return 0;  // the loss head
  const std::optional<std::int64_t> elems = model.units[index]->cache_elems(positions);
  if (!elems) {
    throw Error(
        "unit " + model.spec.units[index].name +
        " cannot run a sequence in parts (Unit::cache_elems), so the model cannot generate");
  }
  return *elems * size_of(dtype);
}

}  // namespace sluice
