// The rules a program must keep, checked without running it. Pure. Each subject has a file.
#pragma once

#include <string>

#include "runtime/program/program.hpp"

namespace sluice {

// The first rule that the program breaks, or "". op_order.hpp says which operations are known to
// have completed. A single operation (op_check):
//   Each operation is on its lane; waits point back; indices are in range; slots have the kind and
//   the group of the operation. Its exchanges are with ranks of its kind of operation.
// A step:
//   slot_check. A buffer comes to life once and dies once, at a compute operation that knows that
//   all users of the buffer have completed. Two living slots share no byte of an arena. Nothing is
//   alive at the end. Gathered parameters have arrived, and are not yet released, where they are
//   read. grad_check. A reduction comes after every unit of the micro-batch has written the
//   gradient, whole. The gradient is written again only after the reduction has completed. Norm and
//   update come after all reductions. unit_check. Each unit runs once per micro-batch in each
//   direction, after the source of its input, and micro-batches in turn, so that sums have one
//   order. Between stages, a message is received before its use, made before it is sent, and each
//   micro-batch crosses once, in turn. The gradients of weights follow a split backward.
//   (pipeline_check.hpp checks all stages together.) At the end every operation is known to have
//   completed, but for transfers of states with the disk.
// Between tiers (tier_check):
//   touches. Buffers, shards (by element) and inputs on NVMe: no operation writes what another may
//   still read or write, or reads what another may still write.
//   transit_check. An operation takes out of a slot what was put in, before the slot is freed.
//   chunk_check. Each chunk is updated once, with its states and gradients present, and written
//   back. A group's parameters are read only after the updates of all its chunks have reached the
//   tier that is read. Its gradients are written only after the updates have taken those of the
//   step before. The norm needs the squares of every chunk whose gradients are on NVMe. ring_check.
//   A slot goes to another chunk after all operations on the previous one, states and gradients
//   independently. An operation finds its chunk in the slot. A step leaves in the ring the states
//   that its next run begins with, as they are on NVMe. speculation_check. A speculative update
//   comes after its chunk's deferred update was written back, with states and gradients present.
//   The gradients are complete: nothing is added afterwards. The update goes to the second place,
//   whole, and touches nothing that others read. image_check. Every chunk has a second place and
//   deferred updates go there. A step commits once, after all deferred updates have been written.
//   The norm, and with early updates every reduction and every early write, comes after the commit.
//   With tensor-parallel ranks, early writes come after all ranks have met, once, after the commit.
// Takes about a millisecond for a thousand operations.
[[nodiscard]] std::string find_fault(const Program& program);

}  // namespace sluice
