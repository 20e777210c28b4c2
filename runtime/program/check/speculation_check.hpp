// Checks speculative updates; program_check.hpp states the rules. Pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "runtime/program/check/op_order.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

class SpeculationCheck {
 public:
  SpeculationCheck(const Program& program, const OpOrder& order);

  // Called for every speculative operation, in the order of the program. Returns its fault, or "".
  // `deferred`: the deferred update of its chunk; -1: not issued. `written`: its states have gone
  // back to the disk.
  [[nodiscard]] std::string enter(OpId op, OpId deferred, bool written);
  // Whether a speculative update has used the group's gradients. Later additions are a fault.
  [[nodiscard]] bool taken(int group) const { return taken_.count(group) > 0; }
  // Called after the last operation: every update that began must have been written.
  [[nodiscard]] std::string fault_at_end() const;

 private:
  struct Guess {
    OpId states = -1;  // reads the states into the ring
    OpId grads = -1;
    OpId summed = -1;  // sums the streams and squares of gradients on NVMe
    OpId update = -1;
    bool states_written = false;
    bool params_written = false;
  };

  [[nodiscard]] std::string update(Guess& guess, OpId id, bool gone_back) const;
  [[nodiscard]] std::string depart(const Guess& guess, bool& written, OpId id) const;

  const Program& program_;
  const OpOrder& order_;
  bool states_on_disk_ = false;
  bool grads_on_host_ = false;
  bool grads_on_disk_ = false;
  std::set<int> written_apart_;  // groups whose parameters go to NVMe beside the states
  std::set<int> replaced_;       // groups whose parameters on the device are replaced early
  std::set<int> taken_;
  std::vector<Guess> guesses_;  // by chunk
};

}  // namespace sluice
