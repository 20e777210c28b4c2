#include "tests/runtime/model/block_run.hpp"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "base/bytes.hpp"
#include "runtime/model/counting_allocator.hpp"
#include "tests/runtime/model/golden.hpp"
#include "zero/partition_plan.hpp"

namespace sluice::testing {
namespace {

// The same values as views of one storage, with a group's alignment.
std::vector<at::Tensor> flattened(const std::vector<at::Tensor>& tensors) {
  std::int64_t end = 0;
  for (const at::Tensor& t : tensors) end = round_up(end, kAlignElems) + t.numel();
  const at::Tensor flat = at::empty({end}, tensors[0].options());
  std::vector<at::Tensor> views;
  std::int64_t start = 0;
  for (const at::Tensor& t : tensors) {
    start = round_up(start, kAlignElems);
    views.push_back(flat.narrow(0, start, t.numel()).view(t.sizes()));
    views.back().copy_(t);
    start += t.numel();
  }
  return views;
}

class Sink final : public GradSink {
 public:
  explicit Sink(const BlockData& data) : written_(data.params.size(), false) {
    for (const at::Tensor& p : data.params) {
      grads_.push_back(at::empty(p.sizes(), c10::ScalarType::Float).fill_(std::nan("")));
    }
    if (data.layout == Layout::kFlat) grads_ = flattened(grads_);
  }
  GradTarget target(int index) override {
    const auto i = static_cast<std::size_t>(index);
    const bool accumulate = written_[i];
    written_[i] = true;
    return {grads_[i], accumulate};
  }
  [[nodiscard]] const std::vector<at::Tensor>& grads() const { return grads_; }

 private:
  std::vector<at::Tensor> grads_;
  std::vector<bool> written_;
};

}  // namespace

BlockData::BlockData(const ModelOptions& options, std::int64_t batch, c10::ScalarType type,
                     Layout where)
    : layout(where) {
  const ModelSpec spec = make_model_spec(options);
  for (const ParamRef& ref : spec.units[1].params) {
    const ParamSpec& param = spec.groups[static_cast<std::size_t>(ref.group)]
                                 .params[static_cast<std::size_t>(ref.index)];
    const auto k = static_cast<std::uint64_t>(params.size());
    const bool one = param.init == Init::kOnes;
    params.push_back(rule_tensor(k, param.tensor.shape, one ? 0.2 : 0.1, one ? 1 : 0).to(type));
  }
  if (layout == Layout::kFlat) params = flattened(params);
  const std::vector<std::int64_t> shape{batch, options.seq, options.hidden};
  x = rule_tensor(100, shape, 1.0).to(type);
  dy = rule_tensor(101, shape, 1.0).to(type);
}

BlockData BlockData::to(c10::ScalarType type) const {
  BlockData result = *this;
  for (at::Tensor& param : result.params) param = param.to(type);
  if (layout == Layout::kFlat) result.params = flattened(result.params);
  result.x = x.to(type);
  result.dy = dy.to(type);
  return result;
}

BlockResult run_block(Unit& unit, const BlockData& data, BlockMemory memory, int micro_batches,
                      const Documents* documents) {
  Sink sink(data);
  BlockResult result{{{}, {}}};
  const at::Tensor dy_before = data.dy.clone();
  for (int i = 0; i < micro_batches; ++i) {
    UnitCall call{.training = true, .seed = 5, .step = 7, .first_sample = 11 * i};
    call.documents = documents;
    std::unique_ptr<Saved> saved;
    const bool keep = memory == BlockMemory::kSaved;
    result.tensors[0] = unit.forward(call, data.params, data.x, keep ? &saved : nullptr);
    result.tensors[1] = unit.backward(call, data.params, data.x, std::move(saved), data.dy, sink);
  }
  EXPECT_TRUE(data.dy.equal(dy_before));
  result.tensors.insert(result.tensors.end(), sink.grads().begin(), sink.grads().end());
  return result;
}

double relative_error(const at::Tensor& ours, const at::Tensor& want) {
  const at::Tensor wide = want.to(c10::ScalarType::Double);
  return norm_of(ours.to(c10::ScalarType::Double).sub(wide)) / norm_of(wide);
}

void expect_same_bits(const BlockResult& a, const BlockResult& b, const char* what) {
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    EXPECT_TRUE(a.tensors[i].equal(b.tensors[i])) << what << ", tensor " << i;
  }
}

UnitMemory real_memory(Unit& unit, const BlockData& data, const Documents* documents) {
  const auto host = [] { return allocation_count(CountedDevice::kHost); };
  Sink sink(data);
  UnitCall call{.training = true};
  call.documents = documents;
  UnitMemory real;
  real.output = data.x.numel() * static_cast<std::int64_t>(data.x.element_size());
  std::int64_t start = host().live;
  reset_allocation_peak(CountedDevice::kHost);
  (void)unit.forward(call, data.params, data.x, nullptr);
  real.forward_only_peak = host().peak - start;
  reset_allocation_peak(CountedDevice::kHost);
  std::unique_ptr<Saved> saved;
  at::Tensor y = unit.forward(call, data.params, data.x, &saved);
  real.forward_peak = host().peak - start;
  real.kept = host().live - start - real.output;
  y.reset();
  start = host().live;
  reset_allocation_peak(CountedDevice::kHost);
  (void)unit.backward(call, data.params, data.x, std::move(saved), data.dy, sink);
  real.backward_peak = host().peak - start;
  start = host().live;
  reset_allocation_peak(CountedDevice::kHost);
  (void)unit.backward(call, data.params, data.x, nullptr, data.dy, sink);
  real.recompute_peak = host().peak - start;
  return real;
}

void expect_dry_run_is_real(const Model& model, const BlockData& data, const std::string& what,
                            const Documents* documents, std::int64_t thread_scratch_bytes) {
  constexpr std::int64_t kScalars = 64;  // numbers that libtorch wraps in 0-dim host tensors
  const UnitMemory real = real_memory(*model.units[1], data, documents);
  const UnitMemory meta =
      profile_unit(model, 1, {.micro_batch = data.x.size(0), .seq = data.x.size(1)});
  EXPECT_EQ(meta.kept, real.kept) << what;
  EXPECT_LE(std::abs(meta.forward_peak - real.forward_peak), kScalars) << what;
  EXPECT_LE(std::abs(meta.forward_only_peak - real.forward_only_peak), kScalars) << what;
  const auto expect_backward = [&](std::int64_t dry, std::int64_t run) {
    EXPECT_LE(run, dry + kScalars) << what;
    EXPECT_GE(run, dry - kScalars - thread_scratch_bytes) << what;
  };
  expect_backward(meta.backward_peak, real.backward_peak);
  expect_backward(meta.recompute_peak, real.recompute_peak);
}

}  // namespace sluice::testing
