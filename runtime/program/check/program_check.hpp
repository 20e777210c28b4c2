// The rules a program must keep, checked without running it. Pure. Each subject has a file.
#pragma once

#include <string>

#include "runtime/program/program.hpp"

namespace sluice {

// Empty if the program is sound, else the first rule broken. What an operation may take to be over
// is in op_order.hpp.
// An operation by itself (op_check):
//   Each operation is on its lane; waits point back; indices are in range; slots are of the kind
//   and the group that are worked on.
// A step:
//   slot_check. A buffer comes to life once and dies once, at an operation of the compute lane that
//   knows over all that use it; no two living slots share bytes of their tier's arena; nothing is
//   left alive at the end. Parameters that are gathered have arrived, and are not yet released,
//   where they are read.
//   grad_check. Gradients are reduced after every unit of the micro-batch has written them, whole,
//   and written again only after their reduction is over; norm and update come after all
//   reductions.
//   unit_check. Each unit runs once a micro-batch in each direction, after what it takes its input
//   from, and micro-batches in turn, so that their sums have one order. Between stages: what a
//   chunk receives comes before it is used, each micro-batch comes and goes once, in turn, and what
//   is sent was made. A split backward is followed by the gradients of its weights.
//   (pipeline_check.hpp has all stages together.)
//   At the end nothing but states under way to or from the disk is not known to be over.
// Between tiers (tier_check):
//   touches. Who writes what others may still read or write, or reads what others may still write
//   (buffers, shards of parameters and gradients by element, inputs on NVMe) is at fault.
//   transit_check. What is put into a slot is what is taken out of it, and nothing is freed before
//   it was.
//   chunk_check. Each chunk is updated once, with its states and gradients there, and taken away
//   afterwards. A group's parameters are read only after the updates of all its chunks have got to
//   where they are read; its gradients are written only after these have taken the last step's; and
//   the norm needs the squares of every chunk whose gradients are on NVMe.
//   ring_check. A slot of the ring goes to another chunk after all operations on the last one, its
//   states and its gradients each for themselves; who works on a chunk finds it there. A step
//   leaves in the ring, as they are on NVMe, the states that its next run begins with.
//   speculation_check. What is updated before the norm is known comes after its last update has
//   gone back, with its states and gradients there; these are the last sums: nothing is added to
//   them afterwards. It goes to its second place, whole, and touches nothing that others read.
//   image_check. Every chunk has a second place, deferred updates go there, and a step commits them
//   once, after all of them are there; what is updated early goes to the places of the step before
//   only then, and no reduction, where there are early updates, and no norm begins before. Where
//   units talk to tensor-parallel ranks, early updates go there after a backward that waits for the
//   commit: the ranks meet there.
// Takes about a millisecond for a thousand operations.
[[nodiscard]] std::string find_fault(const Program& program);

}  // namespace sluice
