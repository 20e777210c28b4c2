// Checks that the programs of all pipeline stages fit together. Pure.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/program/program.hpp"

namespace sluice {

// A message between two stages: operation `send` of stage `from`.
struct PipeMessage {
  int from = -1;
  OpId send = -1;
  int before = -1;  // index of the message before it on its link; -1: the first
};

// All messages of a step. The n-th send of a link matches the n-th receive at the other end.
struct PipeMessages {
  std::vector<PipeMessage> messages;
  // By stage: the message index of each send and receive. Other operations are absent.
  std::vector<std::map<OpId, int>> of_op;
  std::string
      fault;  // empty, or how two ends of a link differ: in number, unit, micro-batch or bytes
};
[[nodiscard]] PipeMessages match_messages(std::span<const Program> stages);

// The first fault with its stage and operation, or "": two ends of a link that do not match, or a
// deadlock. A send completes when the other end has issued its receive. A stage cannot issue a send
// while `capacity` earlier sends of its link have not completed (0: no limit). All stages take part
// in each meeting (meets_all), in the same order. Every other operation completes at once.
// find_fault (program_check.hpp) checks each program by itself.
[[nodiscard]] std::string find_pipeline_fault(std::span<const Program> stages, int capacity = 0);

}  // namespace sluice
