#include "runtime/engine/access/model_use.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.hpp"
#include "base/index.hpp"
#include "parallel/comm/text_exchange.hpp"
#include "runtime/engine/engine_programs.hpp"
#include "runtime/engine/ops/step_ops.hpp"
#include "runtime/engine/program_runner.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/model_slices.hpp"

namespace sluice {

ModelUse::ModelUse(const EngineSetup& setup, const EnginePrograms& programs, StepRun& run,
                   StepOps& ops, ProgramRunner& runner)
    : setup_(setup), programs_(programs), run_(run), ops_(ops), runner_(runner) {}

std::optional<double> ModelUse::evaluate(std::int64_t batches, const std::function<bool()>& leave) {
  run_.loss_sum = 0;
  const std::int64_t per_batch = setup_.shape().micro_batches;
  double divisor = 0;  // targets of all batches, on a rank that has read their rows
  for (std::int64_t i = 0; i < batches * per_batch; ++i) {
    if (i % per_batch == 0 && leave()) return std::nullopt;
    runner_.execute(programs_.eval, RunMode::kEvaluate, i);
    if (i % per_batch == 0) divisor += run_.loss_divisor(setup_.tokens_of_step());
  }
  double sum = 0;
  const std::array<double, 2> mine{setup_.counts_loss() ? run_.loss_sum : 0.0,
                                   setup_.counts_loss() ? divisor : 0.0};
  const std::vector<double> all = setup_.world().all_gather_values(mine);
  divisor = 0;
  for (std::size_t r = 0; r < all.size(); r += mine.size()) {
    sum += all[r];
    divisor = std::max(divisor, all[r + 1]);
  }
  return sum / divisor;
}

std::vector<double> ModelUse::losses(const RowSource& rows, std::int64_t count) {
  ops_.batches().use_rows(rows, count);
  const std::int64_t ranks = setup_.data().size();
  const std::int64_t rounds = (count + ranks - 1) / ranks;
  std::vector<double> mine;
  for (std::int64_t i = 0; i < rounds; ++i) {
    run_.loss_sum = 0;
    runner_.execute(programs_.eval, RunMode::kLosses, i * ranks + setup_.data().rank());
    mine.push_back(run_.loss_sum);
  }
  const std::vector<double> all = setup_.world().all_gather_values(mine);
  const Mesh& mesh = setup_.comms->mesh();
  const int last_stage = mesh.size(MeshAxis::kPipeline) - 1;
  std::vector<double> sums;
  for (std::int64_t i = 0; i < count; ++i) {
    const int rank = mesh.world_rank({0, static_cast<int>(i % ranks), last_stage});
    sums.push_back(nth(all, rank * rounds + i / ranks));
  }
  return sums;
}

at::Tensor ModelUse::decode(std::int64_t first, std::span<const std::int64_t> tokens) {
  const std::int64_t count = std::ssize(tokens);
  check(first == 0 ? count > 0 : first == ops_.compute().cached_positions() && count == 1,
        "positions of a sequence are run in turn, after the first ones one at a time");
  check(first + count <= setup_.options.generate_positions,
        "a sequence is no longer than generate_positions");
  const BatchSize size{1, count};
  ops_.batches().use_tokens(tokens, size);
  runner_.execute(programs_.decode, RunMode::kDecode, first, size);
  ops_.compute().note_cached(first + count);
  return share_logits();
}

at::Tensor ModelUse::next_token_logits(const SampleRows& tokens, std::int64_t rows) {
  const BatchSize size{rows, std::ssize(tokens.tokens) / rows};
  ops_.batches().use_tokens(tokens.tokens, size);
  runner_.execute(programs_.eval, RunMode::kLogits, 0, size);
  return share_logits();
}

at::Tensor ModelUse::share_logits() {
  at::Tensor logits = ops_.compute().take_logits();
  const Mesh& mesh = setup_.comms->mesh();
  const int stages = mesh.size(MeshAxis::kPipeline);
  if (stages == 1) return logits;
  Communicator& world = setup_.world();
  const double mine = logits.defined() ? static_cast<double>(logits.size(1)) : 0;
  const std::vector<double> widths = world.all_gather_values({&mine, 1});
  const MeshCoordinates& at = setup_.comms->at();
  const int from = mesh.world_rank({at.tp, at.dp, stages - 1});
  const auto words = static_cast<std::int64_t>(nth(widths, from));
  const std::int64_t rows = run_.size.rows;
  const at::Tensor own = empty_tensor({rows, words}, c10::ScalarType::Float, setup_.device).zero_();
  if (logits.defined()) own.copy_(logits);
  logits.reset();
  const std::int64_t elems = own.numel();
  const at::Tensor all =
      empty_tensor({world.size() * elems}, c10::ScalarType::Float, setup_.device);
  world.all_gather({{own.data_ptr(), all.data_ptr(), elems, elems}}, DType::kFloat32).wait();
  return all.narrow(0, from * elems, elems).view({rows, words}).clone();
}

std::string ModelUse::find_non_finite(std::int64_t step) {
  run_.loss_sum = 0;
  runner_.execute(programs_.train, RunMode::kDiagnose, step);
  constexpr double kNone = std::numeric_limits<double>::max();
  const OpId found = ops_.compute().first_non_finite();
  const double mine = found >= 0 ? place_in_step(found) : kNone;
  const std::string what = found >= 0 ? describe_place(nth(programs_.train.ops, found)) : "";
  const std::vector<double> all = setup_.world().all_gather_values({&mine, 1});
  const std::vector<std::string> places = exchange_text(setup_.world(), what);
  const auto first = std::min_element(all.begin(), all.end());
  // The second run keeps the updates of the first run's backward.
  const std::string after = setup_.shape().updates_in_backward
                                ? " (the updates of the first run's backward were kept)"
                                : "";
  if (*first == kNone) return "no unit: the values are finite when the step is run again" + after;
  return "rank " + std::to_string(first - all.begin()) + ", " + nth(places, first - all.begin()) +
         after;
}

std::string ModelUse::describe_place(const Op& op) const {
  const std::string phase = op.kind == OpKind::kForward    ? "forward"
                            : op.kind == OpKind::kLossHead ? "loss"
                                                           : "backward";
  return "unit " + nth(setup_.spec().units, op.unit).name + ", " + phase + ", micro-batch " +
         std::to_string(op.micro_batch);
}

// A number that orders operations of all ranks. Without pipeline stages the operation's own number.
// Else by micro-batch; of one micro-batch the forwards in the order of units, then the backwards in
// the reverse order.
double ModelUse::place_in_step(OpId id) const {
  if (setup_.shape().pipeline.stages == 1) return id;
  const Op& op = nth(programs_.train.ops, id);
  const ModelSpec& spec = setup_.spec();
  const int unit = nth(units_of(spec.options, spec.part), op.unit);
  const double units = unit_count(spec.options);
  const bool back = op.kind == OpKind::kBackward || op.kind == OpKind::kBackwardWeights;
  return op.micro_batch * 2 * units + (back ? 2 * units - 1 - unit : unit);
}

}  // namespace sluice
