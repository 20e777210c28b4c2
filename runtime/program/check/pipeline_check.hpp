// Whether the programs of all stages of a pipeline fit together. Pure.
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

// All messages of a step: the n-th send of a link is the n-th receive at its other end.
struct PipeMessages {
  std::vector<PipeMessage> messages;
  // By stage: of a send or receive, the message. Others: not there.
  std::vector<std::map<OpId, int>> of_op;
  std::string
      fault;  // empty, or how the ends of a link differ: in number, unit, micro-batch, bytes
};
[[nodiscard]] PipeMessages match_messages(std::span<const Program> stages);

// Empty, or the first fault, with its stage and operation: two ends of a link that do not match, or
// a deadlock. A send completes when the other end has come to its receive; a stage cannot issue a
// send while `capacity` earlier sends of its link have not completed (0: no limit). All stages take
// part in each meeting (meets_all), in the same order. Every other operation completes at once.
// find_fault (program_check.hpp) checks each program by itself.
[[nodiscard]] std::string find_pipeline_fault(std::span<const Program> stages, int capacity = 0);

}  // namespace sluice
