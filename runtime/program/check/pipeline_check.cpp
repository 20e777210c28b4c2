#include "runtime/program/check/pipeline_check.hpp"

#include <algorithm>
#include <set>

namespace sluice {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

std::vector<OpId> ops_of(const Program& program, OpKind kind) {
  std::vector<OpId> ids;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].kind == kind) ids.push_back(static_cast<OpId>(i));
  }
  return ids;
}

// The distinct units of the operations, in order: one per chunk that uses the link.
std::vector<int> units_of(const Program& program, const std::vector<OpId>& ids) {
  std::set<int> units;
  for (const OpId id : ids) units.insert(program.ops[at(id)].unit);
  return {units.begin(), units.end()};
}

std::int64_t bytes_of(const Program& program, const Op& op) {
  return program.buffers[at(op.device_slot)].bytes;
}

std::ptrdiff_t place_of(const std::vector<int>& units, int unit) {
  return std::find(units.begin(), units.end(), unit) - units.begin();
}

// "operation 12 (SendActivation unit 3, micro-batch 1) of stage 0"
std::string name_of_op(std::span<const Program> stages, int stage, OpId id) {
  const Op& op = stages[at(stage)].ops[at(id)];
  std::string text = "operation " + std::to_string(id) + " (" + std::string(name_of(op.kind));
  if (op.unit >= 0) text += " unit " + std::to_string(op.unit);
  if (op.micro_batch >= 0) text += ", micro-batch " + std::to_string(op.micro_batch);
  return text + ") of stage " + std::to_string(stage);
}

// Matches the ends of one link.
void match_link(std::span<const Program> stages, int from, int to, bool gradient,
                PipeMessages& all) {
  const Program& sender = stages[at(from)];
  const Program& receiver = stages[at(to)];
  const std::vector<OpId> sends =
      ops_of(sender, gradient ? OpKind::kSendGradient : OpKind::kSendActivation);
  const std::vector<OpId> receives =
      ops_of(receiver, gradient ? OpKind::kReceiveGradient : OpKind::kReceiveActivation);
  const std::string link = std::string(gradient ? "gradients" : "activations") + " from stage " +
                           std::to_string(from) + " to stage " + std::to_string(to) + ": ";
  if (sends.size() != receives.size()) {
    all.fault = link + std::to_string(sends.size()) + " are sent, " +
                std::to_string(receives.size()) + " received";
    return;
  }
  const std::vector<int> sending = units_of(sender, sends);
  const std::vector<int> receiving = units_of(receiver, receives);
  int before = -1;
  for (std::size_t n = 0; n < sends.size(); ++n) {
    const Op& send = sender.ops[at(sends[n])];
    const Op& receive = receiver.ops[at(receives[n])];
    if (send.micro_batch != receive.micro_batch ||
        place_of(sending, send.unit) != place_of(receiving, receive.unit) ||
        bytes_of(sender, send) != bytes_of(receiver, receive)) {
      all.fault = link + "message " + std::to_string(n) + " of " +
                  name_of_op(stages, from, sends[n]) + " is not the one that " +
                  name_of_op(stages, to, receives[n]) + " receives";
      return;
    }
    const auto message = static_cast<int>(all.messages.size());
    all.messages.push_back({from, sends[n], before});
    all.of_op[at(from)][sends[n]] = message;
    all.of_op[at(to)][receives[n]] = message;
    before = message;
  }
}

class Links {
 public:
  Links(std::span<const Program> stages, const PipeMessages& all, int capacity)
      : stages_(stages),
        all_(all),
        capacity_(capacity),
        next_(stages.size(), 0),
        met_(stages.size(), 0),
        issued_(all.messages.size(), 0) {}

  std::string run() {
    for (bool moves = true; moves;) {
      moves = false;
      for (std::size_t s = 0; s < stages_.size(); ++s) {
        while (next_[s] < stages_[s].ops.size() && may_issue(s)) {
          issue(s);
          moves = true;
        }
      }
    }
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      if (next_[s] == stages_[s].ops.size()) continue;
      return name_of_op(stages_, static_cast<int>(s), static_cast<OpId>(next_[s])) +
             " waits for ever";
    }
    return "";
  }

 private:
  // Both ends have issued the message, and therefore all earlier messages of its link.
  bool over(int message) const { return issued_[at(message)] == 2; }

  bool messages_arrived(std::size_t s) const {
    const Op& op = stages_[s].ops[next_[s]];
    const auto& mine = all_.of_op[s];
    return op.lane != Lane::kCompute ||
           std::all_of(op.waits.begin(), op.waits.end(), [&](OpId wait) {
             const auto message = mine.find(wait);
             return message == mine.end() || over(message->second);
           });
  }

  // Whether stage s has passed meeting `nth`, or is at meeting `nth` and its kind is `kind`.
  bool came_to(std::size_t s, int nth, OpKind kind) const {
    if (met_[s] != nth) return met_[s] > nth;
    return next_[s] < stages_[s].ops.size() && stages_[s].ops[next_[s]].kind == kind &&
           messages_arrived(s);
  }

  bool may_issue(std::size_t s) const {
    const Op& op = stages_[s].ops[next_[s]];
    const auto& mine = all_.of_op[s];
    if (!messages_arrived(s)) return false;
    for (std::size_t other = 0; meets_all(op.kind) && other < stages_.size(); ++other) {
      if (!came_to(other, met_[s], op.kind)) return false;
    }
    const auto self = mine.find(static_cast<OpId>(next_[s]));
    if (capacity_ == 0 || !is_send(op.kind) || self == mine.end()) return true;
    int earlier = self->second;
    for (int n = 0; n < capacity_ && earlier >= 0; ++n) earlier = all_.messages[at(earlier)].before;
    return earlier < 0 || over(earlier);
  }

  void issue(std::size_t s) {
    const auto self = all_.of_op[s].find(static_cast<OpId>(next_[s]));
    if (self != all_.of_op[s].end()) ++issued_[at(self->second)];
    if (meets_all(stages_[s].ops[next_[s]].kind)) ++met_[s];
    ++next_[s];
  }

  std::span<const Program> stages_;
  const PipeMessages& all_;
  const int capacity_;
  std::vector<std::size_t> next_;  // by stage: the next operation to issue
  std::vector<int> met_;           // by stage: number of meetings passed
  std::vector<int> issued_;        // by message: number of ends issued, 0 to 2
};

}  // namespace

PipeMessages match_messages(std::span<const Program> stages) {
  PipeMessages all;
  all.of_op.resize(stages.size());
  const auto count = static_cast<int>(stages.size());
  if (count < 2) return all;
  for (int s = 0; s < count && all.fault.empty(); ++s) {
    match_link(stages, s, (s + 1) % count, false, all);
    if (all.fault.empty()) match_link(stages, s, (s + count - 1) % count, true, all);
  }
  return all;
}

std::string find_pipeline_fault(std::span<const Program> stages, int capacity) {
  const PipeMessages all = match_messages(stages);
  return all.fault.empty() ? Links(stages, all, capacity).run() : all.fault;
}

}  // namespace sluice
