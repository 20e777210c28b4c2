#include "tests/runtime/model/part_run.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cmath>
#include <exception>
#include <thread>

#include "kernels/cpu/philox.hpp"
#include "runtime/model/tensor_view.hpp"
#include "tests/runtime/model/golden.hpp"

namespace sluice::testing {
namespace {

using at::Tensor;

std::int64_t index_of(const ParamRef& ref) { return ref.group * 1000 + ref.index; }

// All gradients of a part: a tied table's two users add up.
class PartGrads {
 public:
  explicit PartGrads(const ModelSpec& spec) : spec_(spec) {}

  GradTarget target(const ParamRef& ref) {
    const auto [at, fresh] = grads_.try_emplace(index_of(ref));
    if (fresh) {
      at->second = at::empty(param(ref).tensor.shape, c10::ScalarType::Float).fill_(std::nan(""));
    }
    return {at->second, !fresh};
  }
  [[nodiscard]] std::map<std::string, Tensor> by_name() const {
    std::map<std::string, Tensor> result;
    for (std::size_t g = 0; g < spec_.groups.size(); ++g) {
      for (std::size_t i = 0; i < spec_.groups[g].params.size(); ++i) {
        const ParamRef ref{static_cast<int>(g), static_cast<int>(i)};
        result[param(ref).tensor.name] = grads_.at(index_of(ref));
      }
    }
    return result;
  }
  [[nodiscard]] const ParamSpec& param(const ParamRef& ref) const {
    return spec_.groups[static_cast<std::size_t>(ref.group)]
        .params[static_cast<std::size_t>(ref.index)];
  }

 private:
  const ModelSpec& spec_;
  std::map<std::int64_t, Tensor> grads_;
};

class UnitSink final : public GradSink {
 public:
  UnitSink(PartGrads& grads, const UnitSpec& unit, bool splits)
      : grads_(grads), unit_(unit), splits_(splits) {}
  GradTarget target(int index) override {
    return grads_.target(unit_.params[static_cast<std::size_t>(index)]);
  }
  std::unique_ptr<Deferred>* deferred() override { return splits_ ? &deferred_ : nullptr; }
  void finish() {
    splits_ = false;
    if (deferred_) deferred_->run(*this);
  }

 private:
  PartGrads& grads_;
  const UnitSpec& unit_;
  bool splits_;
  std::unique_ptr<Deferred> deferred_;
};

Tensor tokens_of(const PartCase& given, std::int64_t salt) {
  const Tensor tokens = at::empty({given.batch, given.options.seq}, c10::ScalarType::Long);
  auto* ids = tokens.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < tokens.numel(); ++i) {
    ids[i] = (i * i * 7 + i * 13 + salt) % given.options.vocab;
  }
  ids[0] = given.options.vocab - 1;  // of the last rank's slice
  return tokens;
}

// One rank's model with its parameters.
struct Rank {
  Rank(const PartCase& given, const ModelPart& part, Communicator* comm)
      : model(make_model(given.options, part, comm)), grads(model.spec) {
    for (const UnitSpec& unit : model.spec.units) {
      params.emplace_back();
      for (const ParamRef& ref : unit.params) {
        const ParamSpec& param = grads.param(ref);
        params.back().push_back(part_of_whole(whole_parameter(param), param).to(given.type));
      }
    }
  }
  Model model;
  PartGrads grads;
  std::vector<std::vector<Tensor>> params;  // by unit
};

PartResult run_rank(const PartCase& given, const ModelPart& part, Communicator* comm) {
  Rank rank(given, part, comm);
  PartResult result;
  if (rank.model.tensor) {
    rank.model.tensor->watch([&](const TensorGroup::Timed& e) { result.exchanges.push_back(e); });
  }
  const UnitCall call{.training = true, .seed = 5, .step = 7, .first_sample = 3};
  const auto& units = rank.model.units;
  std::vector<Tensor> inputs{tokens_of(given, 3)};
  std::vector<std::unique_ptr<Saved>> saved(units.size());
  const bool keeps = given.mode != PartMode::kRecomputed;
  for (std::size_t u = 0; u < units.size(); ++u) {
    inputs.push_back(
        units[u]->forward(call, rank.params[u], inputs[u], keeps ? &saved[u] : nullptr));
  }
  result.hidden = inputs.back();
  LossHead& head = *rank.model.head;
  result.logits = head.logits(rank.params.back(), result.hidden, 1);
  const Tensor targets = tokens_of(given, 5);
  targets.data_ptr<std::int64_t>()[2] = -100;
  const Tensor scratch = at::empty({head.scratch_bytes(targets.numel(), dtype_of(result.hidden))},
                                   c10::ScalarType::Byte);
  UnitSink head_sink(rank.grads, rank.model.spec.units.back(), false);
  Tensor grad;
  result.loss =
      head.loss(rank.params.back(), result.hidden, targets, 0.125, scratch, &head_sink, &grad);
  EXPECT_EQ(result.loss,
            head.loss(rank.params.back(), result.hidden, targets, 1, scratch, nullptr, nullptr));
  for (std::size_t u = units.size(); u-- > 0;) {
    const bool splits = given.mode == PartMode::kSplit && units[u]->splits_backward();
    UnitSink sink(rank.grads, rank.model.spec.units[u], splits);
    if (u == 0) result.grad_hidden = grad;
    grad = units[u]->backward(call, rank.params[u], inputs[u], std::move(saved[u]), grad, sink);
    sink.finish();
  }
  result.grads = rank.grads.by_name();
  return result;
}

}  // namespace

Tensor whole_parameter(const ParamSpec& param) {
  const auto& shape = param.boxes.empty() ? param.tensor.shape : param.whole_shape;
  const bool one = param.init == Init::kOnes;
  return rule_tensor(hash_name(param.tensor.name) % 1000, shape, one ? 0.2 : 0.15, one ? 1 : 0);
}

Tensor part_of_whole(const Tensor& whole, const ParamSpec& param) {
  if (param.boxes.empty()) return whole;
  std::vector<Tensor> boxes;
  for (const ParamBox& box : param.boxes) {
    Tensor part = whole;
    for (std::size_t d = 0; d < box.offset.size(); ++d) {
      part = part.narrow(static_cast<std::int64_t>(d), box.offset[d], box.length[d]);
    }
    boxes.push_back(part);
  }
  Tensor result = at::cat(boxes).contiguous();
  EXPECT_EQ(result.sizes().vec(), param.tensor.shape) << param.tensor.name;
  return result;
}

ModelPart part_of_rank(const PartCase& given, int rank) {
  return {.tensor = given.tensor, .tensor_rank = rank, .sequence = given.sequence};
}

std::vector<PartResult> run_parts(const PartCase& given) {
  if (given.tensor == 1) return {run_rank(given, {}, nullptr)};
  const auto comms = make_local_communicators(given.tensor, std::chrono::milliseconds{60'000});
  std::vector<PartResult> results(static_cast<std::size_t>(given.tensor));
  std::vector<std::exception_ptr> errors(results.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < results.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        results[r] = run_rank(given, part_of_rank(given, static_cast<int>(r)), comms[r].get());
      } catch (...) {
        errors[r] = std::current_exception();
        comms[r]->abort();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return results;
}

}  // namespace sluice::testing
