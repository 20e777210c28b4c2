#include "runtime/program/check/speculation_check.hpp"

#include <utility>

#include "base/index.hpp"

namespace sluice {

SpeculationCheck::SpeculationCheck(const Program& program, const OpOrder& order)
    : program_(program), order_(order), guesses_(program.chunks.size()) {
  bool stored = false;
  for (const Op& op : program.ops) {
    stored = stored || op.kind == OpKind::kStoreGrads;
    grads_on_disk_ = grads_on_disk_ || op.kind == OpKind::kWriteBucket;
    states_on_disk_ = states_on_disk_ || op.kind == OpKind::kWriteStates;
    if (op.kind == OpKind::kWriteParams) written_apart_.insert(op.group);
    if (op.kind != OpKind::kCopyParams || !nth(program.chunks, op.chunk).speculated) continue;
    // The deferred operation has nothing to move: the parameters are there.
    if (op.speculative || op.moved_bytes == 0) replaced_.insert(op.group);
  }
  grads_on_host_ = stored && !grads_on_disk_;
}

std::string SpeculationCheck::enter(OpId id, OpId deferred, bool written) {
  const Op& op = nth(program_.ops, id);
  const bool gone_back = states_on_disk_ ? written : deferred >= 0 && order_.over(deferred, id);
  Guess& guess = nth(guesses_, op.chunk);
  switch (op.kind) {
    case OpKind::kReadStates:
      if (!gone_back) return "comes before its chunk has gone back";
      return std::exchange(guess.states, id) < 0 ? "" : "comes twice";
    case OpKind::kCopyGrads:
    case OpKind::kReadGrads:
      taken_.insert(op.group);
      return std::exchange(guess.grads, id) < 0 ? "" : "comes twice";
    case OpKind::kSumSquares:
      if (guess.grads < 0 || !order_.over(guess.grads, id)) return "has no gradients";
      guess.summed = id;
      return "";
    case OpKind::kUpdate:
      if (grads_on_host_) taken_.insert(op.group);
      return update(guess, id, gone_back);
    case OpKind::kWriteStates:
      return depart(guess, guess.states_written, id);
    default:
      return depart(guess, guess.params_written, id);
  }
}

std::string SpeculationCheck::update(Guess& guess, OpId id, bool gone_back) const {
  if (std::exchange(guess.update, id) >= 0) return "updates a chunk twice";
  const bool there =
      states_on_disk_ ? guess.states >= 0 && order_.over(guess.states, id) : gone_back;
  if (!there) return "lacks its states";
  if (grads_on_host_) return "";
  const OpId grads = grads_on_disk_ ? guess.summed : guess.grads;
  return grads >= 0 && order_.over(grads, id) ? "" : "lacks its gradients";
}

std::string SpeculationCheck::depart(const Guess& guess, bool& written, OpId id) const {
  if (guess.update < 0 || !order_.over(guess.update, id)) {
    return "takes away a chunk that was not updated";
  }
  return std::exchange(written, true) ? "comes twice" : "";
}

std::string SpeculationCheck::fault_at_end() const {
  for (std::size_t c = 0; c < guesses_.size(); ++c) {
    if (!program_.chunks[c].speculated) continue;
    const Guess& guess = guesses_[c];
    if (guess.update < 0) return "a chunk is to be updated early, and is not";
    const int group = program_.chunks[c].group;
    const bool apart = states_on_disk_ && written_apart_.count(group) > 0;
    const bool with_params = apart || replaced_.count(group) > 0;
    if ((states_on_disk_ && !guess.states_written) || (with_params && !guess.params_written)) {
      return "a chunk is updated early, and not written";
    }
  }
  return "";
}

}  // namespace sluice
