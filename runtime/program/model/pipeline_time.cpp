#include "runtime/program/model/pipeline_time.hpp"

#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "base/index.hpp"
#include "runtime/program/check/pipeline_check.hpp"
#include "runtime/program/model/lane_schedule.hpp"

namespace sluice {
namespace {

std::size_t as_index(int index) { return static_cast<std::size_t>(index); }

// State that all stages share: times of messages and of arrivals at meetings. Below 0: not yet.
struct Board {
  const PipeMessages& all;
  std::span<const std::vector<double>> seconds;
  std::vector<int> ends_there;  // by message: number of ends issued, 0 to 2
  std::vector<double> issued;   // by message: issue time of the later end
  std::vector<double> arrived;
  std::vector<std::vector<double>> came;  // by meeting, by stage

  // Messages of a link arrive in order, so the earliest unknown arrival is computed first.
  std::optional<double> arrival(int message) {
    std::vector<int> open;
    for (int m = message; m >= 0 && arrived[as_index(m)] < 0;
         m = all.messages[as_index(m)].before) {
      if (ends_there[as_index(m)] < 2) return std::nullopt;
      open.push_back(m);
    }
    for (; !open.empty(); open.pop_back()) {
      const PipeMessage& next = all.messages[as_index(open.back())];
      const double free = next.before >= 0 ? arrived[as_index(next.before)] : 0;
      arrived[as_index(open.back())] = std::max(issued[as_index(open.back())], free) +
                                       seconds[as_index(next.from)][as_index(next.send)];
    }
    return arrived[as_index(message)];
  }
};

class Stage final : public PeerStages {
 public:
  Stage(Board& board, std::size_t stage) : board_(board), stage_(stage) {}

  void issued(OpId op, double when) override {
    const auto message = as_index(board_.all.of_op[stage_].at(op));
    ++board_.ends_there[message];
    board_.issued[message] = std::max(board_.issued[message], when);
  }
  std::optional<double> end_of(OpId op) override {
    return board_.arrival(board_.all.of_op[stage_].at(op));
  }
  // Called again with the same `op` until all stages have come.
  std::optional<double> meet(OpId op, double when) override {
    if (meetings_.empty() || meetings_.back() != op) meetings_.push_back(op);
    const std::size_t nth = meetings_.size() - 1;
    const std::size_t stages = board_.seconds.size();
    board_.came.resize(std::max(board_.came.size(), nth + 1), std::vector<double>(stages, -1));
    std::vector<double>& came = board_.came[nth];
    came[stage_] = when;
    double latest = 0;
    for (const double other : came) {
      if (other < 0) return std::nullopt;
      latest = std::max(latest, other);
    }
    return latest;
  }

 private:
  Board& board_;
  std::size_t stage_;
  std::vector<OpId> meetings_;  // of this stage, so far
};

}  // namespace

PipelineTime model_pipeline_time(std::span<const Program> stages,
                                 std::span<const std::vector<double>> seconds, double disk_duplex,
                                 bool shared_cores) {
  check(seconds.size() == stages.size(), "durations for each stage");
  const PipeMessages all = match_messages(stages);
  if (!all.fault.empty()) throw Error("programs of a pipeline do not fit together: " + all.fault);
  const std::size_t messages = all.messages.size();
  Board board{all,
              seconds,
              std::vector<int>(messages, 0),
              std::vector<double>(messages, 0),
              std::vector<double>(messages, -1),
              {}};
  std::vector<std::unique_ptr<Stage>> peers;
  std::vector<LaneSchedule> lanes;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    check(seconds[s].size() == stages[s].ops.size(), "a duration for each operation");
    peers.push_back(std::make_unique<Stage>(board, s));
    lanes.emplace_back(stages[s], seconds[s], disk_duplex, peers.back().get());
  }
  for (bool moves = true; moves;) {
    moves = false;
    for (LaneSchedule& stage : lanes) moves = (!stage.done() && stage.advance()) || moves;
  }
  PipelineTime time;
  for (LaneSchedule& stage : lanes) {
    check(stage.done(), "the stages of a pipeline wait for each other");
    time.stages.push_back(stage.report(shared_cores));
    time.step_s = std::max(time.step_s, time.stages.back().step_s);
  }
  for (const TimeReport& stage : time.stages) {
    const double waiting = nth(stage.waiting, Lane::kPipe);
    time.bubble.push_back(time.step_s > 0 ? waiting / time.step_s : 0);
  }
  return time;
}

PipelineTime predict_pipeline_time(std::span<const Program> stages,
                                   std::span<const StepShape> shapes,
                                   std::span<const Rates> rates) {
  check(stages.size() == shapes.size() && stages.size() == rates.size() && !stages.empty(),
        "a program, a shape and rates for each stage");
  std::vector<std::vector<double>> seconds;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    seconds.push_back(op_seconds(stages[s], shapes[s], rates[s]));
  }
  PipelineTime time =
      model_pipeline_time(stages, seconds, rates[0].disk_duplex, rates[0].shared_cores);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    time.stages[s].exchanges =
        place_exchanges(stages[s], shapes[s], rates[s], time.stages[s].timeline);
  }
  return time;
}

}  // namespace sluice
