// Checks the rules of a program without running the program. Each subject has a file. Pure.
#pragma once

#include <string>

#include "runtime/program/program.hpp"

namespace sluice {

// The first rule that the program breaks, or "". op_order.hpp says which operations are known to
// have completed. A single operation (op_check):
//   Each operation is on its lane. Waits point back. Indices are in range. Slots have the kind and
//   the group of the operation. Its exchanges are with the ranks of its kind of operation.
// A step:
//   slot_check. A buffer comes to life once and dies once, at a compute operation that knows that
//   all users of the buffer have completed. Two living slots share no byte of an arena. Nothing is
//   alive at the end. When an operation reads gathered parameters, the gather has completed and no
//   release has been issued. No group is updated on the device while it is gathered. grad_check. A
//   reduction comes after every unit of the micro-batch has written the whole gradient. The
//   gradient is written again only after the reduction has completed. Norm and update come after
//   all reductions. An update in the backward comes after those of its group, and no later
//   operation of the step uses the group. No group is updated twice. unit_check. Each unit runs
//   once per micro-batch in each direction, after the source of its input. Micro-batches run in
//   order, so sums have one order. Between stages, a message is received before its use and made
//   before its send. Each micro-batch crosses once, in order. The gradients of weights follow a
//   split backward. (pipeline_check.hpp checks all stages together.) At the end every operation is
//   known to have completed, except transfers of states with the disk.
// Between tiers (tier_check):
//   touches. No two operations that may overlap access the same buffer, shard element or input on
//   NVMe if one of them writes.
//   transit_check. An operation finds the expected content in its slot, before the slot is freed.
//   chunk_check. Each chunk is updated once, with its states and gradients present, and written
//   back. A group's parameters are read only after the updates of all its chunks have reached the
//   tier that is read. Its gradients are written only after the updates have read the previous
//   step's gradients. The norm needs the squares of every chunk whose gradients are on NVMe, and of
//   those on the host that chunks sum.
//   ring_check. A slot goes to another chunk after all operations on the previous chunk, states and
//   gradients independently. An operation finds its chunk in the slot. A step leaves in the ring
//   the states that its next run begins with, equal to the states on NVMe. speculation_check. A
//   speculative update comes after its chunk's deferred update was written back, or on the host was
//   computed, with states and gradients present. The gradients are complete: no operation adds to
//   them later. The whole update goes to the second place and changes nothing that other operations
//   read. image_check. Every chunk has a second place and deferred updates go there. A step commits
//   once, after all deferred updates have been written. The norm comes after the commit, and so
//   does every speculative write, and every reduction if the program has speculative updates. With
//   tensor-parallel ranks, speculative writes follow one meeting of all ranks after the commit.
// Takes about a millisecond per thousand operations.
[[nodiscard]] std::string find_fault(const Program& program);

}  // namespace sluice
