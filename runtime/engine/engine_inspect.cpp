// What looks at a model rather than trains it: evaluation, logits, parameters, the search for a
// NaN.
#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "parallel/comm/text_exchange.hpp"
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
  const double mine = counts_loss() ? loss_sum_ : 0.0;
  for (const double part : world_.all_gather_values({&mine, 1})) sum += part;
  return sum / static_cast<double>(batches * per_batch * data_.size() * options_.train.micro_batch *
                                   model_.spec.options.seq);
}

std::vector<double> Engine::losses(const RowSource& rows, std::int64_t count) {
  finish_updates();
  rows_ = &rows;
  row_batches_ = count;
  const std::int64_t ranks = data_.size();
  const std::int64_t rounds = (count + ranks - 1) / ranks;
  std::vector<double> mine;
  for (std::int64_t i = 0; i < rounds; ++i) {
    loss_sum_ = 0;
    execute_program(eval_program_, Mode::kLosses, i * ranks + data_.rank());
    mine.push_back(loss_sum_);
  }
  const std::vector<double> all = world_.all_gather_values(mine);
  const Mesh& mesh = comms_->mesh();
  const int last_stage = mesh.size(MeshAxis::kPipeline) - 1;
  std::vector<double> sums;
  for (std::int64_t i = 0; i < count; ++i) {
    const int rank = mesh.world_rank({0, static_cast<int>(i % ranks), last_stage});
    sums.push_back(all[static_cast<std::size_t>(rank * rounds + i / ranks)]);
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
  rows_at_once_ = 1;
  tokens_of_row_ = count;
  execute_program(decode_program_, Mode::kDecode, first);
  decoded_ = first + count;
  return share_logits();
}

at::Tensor Engine::next_token_logits(const SampleRows& tokens, std::int64_t rows) {
  finish_updates();
  const auto seq = static_cast<std::int64_t>(tokens.tokens.size()) / rows;
  const at::Tensor host = empty_tensor({rows, seq}, c10::ScalarType::Long);
  std::copy(tokens.tokens.begin(), tokens.tokens.end(), host_data<std::int64_t>(host));
  flights_[0].tokens = host.to(device_);
  flights_[0].targets = flights_[0].tokens;
  rows_at_once_ = rows;
  tokens_of_row_ = seq;
  execute_program(eval_program_, Mode::kLogits, 0);
  return share_logits();
}

std::string Engine::find_non_finite(std::int64_t step) {
  first_non_finite_ = -1;
  loss_sum_ = 0;
  execute_program(train_program_, Mode::kDiagnose, step);
  constexpr double kNone = std::numeric_limits<double>::max();
  double mine = kNone;
  std::string what;
  if (first_non_finite_ >= 0) {
    const Op& op = train_program_.ops[static_cast<std::size_t>(first_non_finite_)];
    mine = plan_.shape.pipeline.stages == 1 ? first_non_finite_ : place_in_step(op);
    const std::string phase = op.kind == OpKind::kForward    ? "forward"
                              : op.kind == OpKind::kLossHead ? "loss"
                                                             : "backward";
    what = "unit " + model_.spec.units[static_cast<std::size_t>(op.unit)].name + ", " + phase +
           ", micro-batch " + std::to_string(op.micro_batch);
  }
  const std::vector<double> all = world_.all_gather_values({&mine, 1});
  const std::vector<std::string> found = exchange_text(world_, what);
  const auto first = std::min_element(all.begin(), all.end());
  if (*first == kNone) return "no unit: the values are finite when the step is run again";
  return "rank " + std::to_string(first - all.begin()) + ", " +
         found[static_cast<std::size_t>(first - all.begin())];
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
      case OpKind::kBackwardWeights:
        times.backward += run;
        break;
      case OpKind::kAddReplicas:
        times.comm += run;
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
