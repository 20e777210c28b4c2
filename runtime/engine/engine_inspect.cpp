// What looks at a model rather than trains it: evaluation, logits, parameters, the search for a
// NaN.
#include <algorithm>
#include <limits>

#include "kernels/base/error.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {

double Engine::evaluate(std::int64_t batches) {
  finish_updates();
  loss_sum_ = 0;
  const std::int64_t per_batch = plan_.shape.micro_batches;
  for (std::int64_t i = 0; i < batches * per_batch; ++i) {
    execute_program(eval_program_, Mode::kEvaluate, i);
  }
  double sum = 0;
  const double mine = loss_sum_;
  for (const double part : comm_.all_gather_values({&mine, 1})) sum += part;
  return sum / static_cast<double>(batches * per_batch * comm_.size() * options_.train.micro_batch *
                                   model_.spec.options.seq);
}

std::vector<double> Engine::losses(const RowSource& rows, std::int64_t count) {
  finish_updates();
  rows_ = &rows;
  row_batches_ = count;
  const std::int64_t rounds = (count + comm_.size() - 1) / comm_.size();
  std::vector<double> mine;
  for (std::int64_t i = 0; i < rounds; ++i) {
    loss_sum_ = 0;
    execute_program(eval_program_, Mode::kLosses, i * comm_.size() + comm_.rank());
    mine.push_back(loss_sum_);
  }
  const std::vector<double> all = comm_.all_gather_values(mine);
  std::vector<double> sums;
  for (std::int64_t i = 0; i < count; ++i) {
    sums.push_back(all[static_cast<std::size_t>(i % comm_.size() * rounds + i / comm_.size())]);
  }
  return sums;
}

at::Tensor Engine::decode(std::int64_t first, std::span<const std::int64_t> tokens) {
  finish_updates();
  const auto count = static_cast<std::int64_t>(tokens.size());
  check(first == 0 ? count > 0 : first == decoded_ && count == 1,
        "positions of a sequence are run in turn, after the first ones one at a time");
  check(first + count <= options_.generate_positions,
        "a sequence is no longer than generate_positions");
  const at::Tensor host = empty_tensor({1, count}, c10::ScalarType::Long);
  std::copy(tokens.begin(), tokens.end(), host_data<std::int64_t>(host));
  flights_[0].tokens = host.to(device_);
  flights_[0].targets = flights_[0].tokens;
  execute_program(decode_program_, Mode::kDecode, first);
  decoded_ = first + count;
  return std::move(logits_);
}

at::Tensor Engine::next_token_logits(const SampleRows& tokens, std::int64_t rows) {
  finish_updates();
  const auto seq = static_cast<std::int64_t>(tokens.tokens.size()) / rows;
  const at::Tensor host = empty_tensor({rows, seq}, c10::ScalarType::Long);
  std::copy(tokens.tokens.begin(), tokens.tokens.end(), host_data<std::int64_t>(host));
  flights_[0].tokens = host.to(device_);
  flights_[0].targets = flights_[0].tokens;
  execute_program(eval_program_, Mode::kLogits, 0);
  return std::move(logits_);
}

std::string Engine::find_non_finite(std::int64_t step) {
  first_non_finite_ = -1;
  loss_sum_ = 0;
  execute_program(train_program_, Mode::kDiagnose, step);
  constexpr double kNone = std::numeric_limits<double>::max();
  const double mine = first_non_finite_ < 0 ? kNone : first_non_finite_;
  const std::vector<double> all = comm_.all_gather_values({&mine, 1});
  const auto first = std::min_element(all.begin(), all.end());
  if (*first == kNone) return "no unit: the values are finite when the step is run again";
  const Op& op = train_program_.ops[static_cast<std::size_t>(*first)];
  const std::string phase = op.kind == OpKind::kForward    ? "forward"
                            : op.kind == OpKind::kBackward ? "backward"
                                                           : "loss";
  return "rank " + std::to_string(first - all.begin()) + ", unit " +
         model_.spec.units[static_cast<std::size_t>(op.unit)].name + ", " + phase +
         ", micro-batch " + std::to_string(op.micro_batch);
}

Engine::Place Engine::place_of(const std::string& name) const {
  for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
    const std::vector<TensorPlacement>& tensors = plan_.groups[g].tensors;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].spec.name == name) return {static_cast<int>(g), static_cast<int>(i)};
    }
  }
  throw Error("no parameter is named " + name);
}

// fp32, on the host.
at::Tensor Engine::owned_master(int g) {
  const at::Tensor owned = empty_tensor({owned_elems(plan_.shape, g)}, c10::ScalarType::Float);
  const GroupState& state = store_.group(g);
  const at::Tensor& here = plan_.shape.frozen ? state.shard : state.master;
  if (here.defined()) owned.narrow(0, 0, here.numel()).copy_(here);
  if (tiers_) {
    tiers_->read_master(g, {host_data<float>(owned), static_cast<std::size_t>(owned.numel())});
  }
  return owned;
}

void Engine::write_owned(int g, std::int64_t begin, const at::Tensor& values) {
  store_.write_master(g, begin, values);
  if (tiers_) {
    tiers_->write_master(g, begin,
                         {host_data<float>(values), static_cast<std::size_t>(values.numel())});
  }
}

at::Tensor Engine::full_parameter(const std::string& name) {
  finish_updates();
  const Place place = place_of(name);
  const GroupPlan& plan = plan_.groups[static_cast<std::size_t>(place.group)];
  const TensorPlacement& tensor = plan.tensors[static_cast<std::size_t>(place.index)];
  at::Tensor whole = owned_master(place.group);
  if (plan_.shape.stage > 0) {
    const at::Tensor own = whole.to(device_);
    const at::Tensor all = empty_tensor({plan.elems}, c10::ScalarType::Float, device_);
    comm_
        .all_gather({{own.data_ptr(), all.data_ptr(), plan.shard_elems, plan.shard_elems}},
                    DType::kFloat32)
        .wait();
    whole = all.to(c10::DeviceType::CPU);
  }
  return whole.narrow(0, tensor.offset_elems, tensor.elems).view(tensor.spec.shape).clone();
}

void Engine::set_parameter(const std::string& name, const at::Tensor& value) {
  finish_updates();
  const Place place = place_of(name);
  const GroupPlan& plan = plan_.groups[static_cast<std::size_t>(place.group)];
  const TensorPlacement& tensor = plan.tensors[static_cast<std::size_t>(place.index)];
  check(value.numel() == tensor.elems, "a parameter is replaced by one of its size");
  const std::int64_t begin = plan_.shape.stage == 0 ? 0 : comm_.rank() * plan.shard_elems;
  const std::int64_t end = begin + owned_elems(plan_.shape, place.group);
  const std::int64_t from = std::max(begin, tensor.offset_elems);
  const std::int64_t to = std::min(end, tensor.offset_elems + tensor.elems);
  if (from < to) {
    const at::Tensor flat = value.to(c10::ScalarType::Float).contiguous().flatten();
    write_owned(place.group, from - begin, flat.narrow(0, from - tensor.offset_elems, to - from));
  }
  store_.group(place.group).fresh = plan_.shape.stage == 0;
}

StepTimes Engine::sum_times() const {
  StepTimes times;
  for (std::size_t i = 0; i < timings_.size(); ++i) {
    const Op& op = program_->ops[i];
    const double run = 1e-3 * static_cast<double>(timings_[i].end_us - timings_[i].begin_us);
    times.comm += 1e-3 * static_cast<double>(timings_[i].begin_us - timings_[i].wait_us);
    switch (op.kind) {
      case OpKind::kForward:
      case OpKind::kLossHead:
        times.forward += run;
        break;
      case OpKind::kBackward:
        times.backward += run;
        break;
      case OpKind::kNormAndScale:
        times.optimizer += run;
        break;
      case OpKind::kUpdate:
        times.optimizer +=
            op.lane == Lane::kCompute
                ? run
                : 1e-3 * static_cast<double>(timings_[i].lane_end_us - timings_[i].lane_begin_us);
        break;
      default:
        break;
    }
  }
  times.data = data_ms_;
  return times;
}

}  // namespace sluice
