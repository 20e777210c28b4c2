#include "tests/runtime/program/tier_simulation.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <vector>

#include "runtime/program/write/step_writer.hpp"
#include "tests/runtime/program/tier_play.hpp"

namespace sluice {
namespace {

// How the adversary chooses among what may happen next.
enum class Habit {
  kAnything,
  kComputeFirst,   // the executing thread runs ahead as far as it can
  kEndsLast,       // everything starts as soon as it may, and ends as late as it may
  kStartsLast,     // everything starts as late as it may
  kOwnPriorities,  // each start and each end has its own haste
};
constexpr std::uint64_t kHabits = 5;

class Scheduler {
 public:
  Scheduler(TierPlay& play, const Program& program, Habit habit, std::mt19937_64& random)
      : play_(play),
        program_(program),
        habit_(habit),
        random_(random),
        ended_(program.ops.size(), false),
        missing_(program.ops.size()),
        waiting_(program.ops.size()) {
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      missing_[i] = program.ops[i].waits.size();
      for (const OpId w : program.ops[i].waits) {
        waiting_[static_cast<std::size_t>(w)].push_back(static_cast<OpId>(i));
      }
    }
    if (habit != Habit::kAnything) {
      for (std::size_t i = 0; i < 2 * program.ops.size(); ++i) haste_.push_back(random() % 1000);
    }
  }

  void run() {
    while (play_.fault().empty()) {
      const std::optional<Event> event = choose();
      if (!event) break;
      happen(*event);
    }
    const bool whole = std::all_of(ended_.begin(), ended_.end(), [](bool e) { return e; });
    if (play_.fault().empty() && !whole) play_.fail(static_cast<OpId>(next_), "never runs");
  }

 private:
  enum class What { kIssue, kStart, kEnd };
  struct Event {
    What what = What::kIssue;
    OpId op = -1;
    std::uint64_t haste = 0;
  };

  const Op& op(OpId id) const { return program_.ops[static_cast<std::size_t>(id)]; }
  bool may_run(OpId id) const { return missing_[static_cast<std::size_t>(id)] == 0; }
  void end(OpId id) {
    play_.end(id);
    ended_[static_cast<std::size_t>(id)] = true;
    for (const OpId w : waiting_[static_cast<std::size_t>(id)]) {
      --missing_[static_cast<std::size_t>(w)];
    }
  }

  std::uint64_t haste_of(What what, OpId id) {
    if (habit_ == Habit::kAnything) return random_();
    const std::uint64_t own =
        haste_[2 * static_cast<std::size_t>(id) + (what == What::kEnd ? 1 : 0)];
    const bool first = (habit_ == Habit::kComputeFirst && what == What::kIssue) ||
                       (habit_ == Habit::kEndsLast && what == What::kStart) ||
                       (habit_ == Habit::kStartsLast && what == What::kIssue);
    const bool last = (habit_ == Habit::kEndsLast && what == What::kEnd) ||
                      (habit_ == Habit::kStartsLast && what == What::kStart);
    return own + (first ? 2000 : last ? 0 : 1000);
  }

  std::optional<Event> choose() {
    std::optional<Event> best;
    const auto offer = [&](What what, OpId id) {
      const Event event{what, id, haste_of(what, id)};
      if (!best || event.haste > best->haste) best = event;
    };
    if (next_ < program_.ops.size()) {
      const auto id = static_cast<OpId>(next_);
      if (op(id).lane != Lane::kCompute || may_run(id)) offer(What::kIssue, id);
    }
    for (std::size_t lane = 0; lane < kQueues; ++lane) {
      for (const OpId id : queued_[lane]) {
        if (may_run(id) && (lane == kDisk || !busy_[lane])) offer(What::kStart, id);
        if (lane != kDisk) break;
      }
    }
    for (const OpId id : running_) offer(What::kEnd, id);
    return best;
  }

  void happen(const Event& event) {
    const OpId id = event.op;
    const std::size_t lane = queue_of(op(id));
    if (event.what == What::kIssue) {
      ++next_;
      play_.enter(id);
      if (op(id).lane != Lane::kCompute) {
        queued_[lane].push_back(id);
        return;
      }
      play_.begin(id);
      end(id);
      play_.leave(id);
    } else if (event.what == What::kStart) {
      std::erase(queued_[lane], id);
      busy_[lane] = true;
      running_.push_back(id);
      play_.begin(id);
    } else {
      std::erase(running_, id);
      busy_[lane] = false;
      end(id);
    }
  }

  // Each kind of the pipe is a lane by itself.
  static std::size_t queue_of(const Op& op) {
    const auto lane = static_cast<std::size_t>(op.lane);
    return op.lane == Lane::kPipe ? lane + static_cast<std::size_t>(op.kind) -
                                        static_cast<std::size_t>(OpKind::kSendActivation)
                                  : lane;
  }
  static constexpr auto kDisk = static_cast<std::size_t>(Lane::kDisk);
  static constexpr std::size_t kQueues = kLaneCount + 3;

  TierPlay& play_;
  const Program& program_;
  const Habit habit_;
  std::mt19937_64& random_;
  std::vector<std::uint64_t> haste_;
  std::size_t next_ = 0;
  std::vector<bool> ended_;
  std::vector<std::size_t> missing_;        // by operation: waits that have not ended
  std::vector<std::vector<OpId>> waiting_;  // by operation: those that wait for it
  std::array<std::vector<OpId>, kQueues> queued_;
  std::array<bool, kQueues> busy_{};
  std::vector<OpId> running_;
};

}  // namespace

std::string simulate(std::span<const Playing> programs, const StepShape& shape,
                     std::uint64_t seed) {
  std::mt19937_64 random(seed);
  TierPlay play(shape, static_cast<int>(seed % static_cast<std::uint64_t>(shape.dp)));
  const auto habit = static_cast<Habit>(seed % kHabits);
  const Program updates = write_update_step(shape);
  for (std::size_t p = 0; p < programs.size(); ++p) {
    const Outcome outcome{.speculates = random() % 4 != 0,
                          .clipped = random() % 3 == 0,
                          .thrown_away = random() % 6 == 0,
                          .in_time = (seed + p + 1) * 0x9e3779b97f4a7c15U};
    play.load(programs[p], outcome);
    Scheduler(play, *programs[p].program, habit, random).run();
    if (programs[p].kind == PlayKind::kTrain && outcome.speculates && outcome.thrown_away) {
      play.load({&updates, PlayKind::kRemake}, {});
      Scheduler(play, updates, habit, random).run();
    }
    if (!play.fault().empty()) return "program " + std::to_string(p) + ", " + play.fault();
  }
  return "";
}

std::string play_steps(const Program& train, const StepShape& shape, std::uint64_t seed) {
  const Program updates = write_update_step(shape);
  const Playing step{&train, PlayKind::kTrain};
  const Playing look{&updates, PlayKind::kUpdates};
  const Playing steps[] = {step, step, step, look, step, step, look, step};
  return simulate(steps, shape, seed);
}

}  // namespace sluice
