#include "runtime/plan/programs/planned_program.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "runtime/program/write/step_writer.hpp"

namespace sluice {
namespace {

[[noreturn]] void refuse_micro_batches(std::int64_t micro_batches, const std::string& why) {
  throw ConfigError("train.global_batch: a step of " + std::to_string(micro_batches) +
                    " micro-batches on each rank " + why +
                    "; global_batch counts samples, not tokens: give fewer samples, or a larger "
                    "train.micro_batch");
}

// About 800 bytes an operation in a plan, with its schedule: 14 GiB. Each rank of a run holds its
// program too.
constexpr std::int64_t kMostOps = std::int64_t{1} << 24;

}  // namespace

int countable_micro_batches(std::int64_t micro_batches) {
  if (micro_batches > std::numeric_limits<int>::max()) {
    refuse_micro_batches(micro_batches, "is more than 2^31 - 1");
  }
  return static_cast<int>(micro_batches);
}

void refuse_long_program(const StepShape& shape) {
  constexpr std::int64_t kAnyFits = 1024;
  if (shape.micro_batches <= kAnyFits) return;
  const int few = 4 * shape.pipeline.stages;
  if (shape.micro_batches <= 2 * few) return;
  const auto ops_of = [&shape](int micro_batches) {
    StepShape other = shape;
    other.micro_batches = micro_batches;
    return static_cast<std::int64_t>(write_train_step(other).ops.size());
  };
  const std::int64_t each = (ops_of(2 * few) - ops_of(few)) / few;
  const std::int64_t ops = each * shape.micro_batches;
  if (ops <= kMostOps) return;
  refuse_micro_batches(shape.micro_batches, "is a program of about " + std::to_string(ops) +
                                                " operations, and the longest has " +
                                                std::to_string(kMostOps) + " in about 14 GiB");
}

Program planned_program(const StepShape& shape) {
  refuse_long_program(shape);
  Program program = write_train_step(shape);
  if (failpoint("plan.stage." + std::to_string(shape.pipeline.stage)) ==
      FailpointOutcome::kPoison) {
    const auto message = std::find_if(program.ops.begin(), program.ops.end(),
                                      [](const Op& op) { return op.lane == Lane::kPipe; });
    if (message != program.ops.end()) ++message->micro_batch;
  }
  return program;
}

}  // namespace sluice
