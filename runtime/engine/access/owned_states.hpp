// The states that this rank owns, read and written from outside a program: in fp32, by element of a
// group's owned part, wherever they live (device, host, NVMe). Not collective. Executing thread,
// while no program runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "runtime/engine/access/frozen_rounding.hpp"
#include "runtime/engine/state_pieces.hpp"

namespace sluice {

class GroupStore;
class StepCarry;
class TierStore;
struct EngineSetup;

class OwnedStates {
 public:
  // `tiers`: null where everything lives on the device.
  OwnedStates(const EngineSetup& setup, GroupStore& store, StepCarry& carry, TierStore* tiers);

  // Elements [first, first + values.size()) of a piece; Engine::read_state has the rules.
  void read(const StatePiece& piece, StateKind kind, std::int64_t first, std::span<float> values);
  void write(const StatePiece& piece, StateKind kind, std::int64_t first,
             std::span<const float> values);

  // Master weights of a whole owned part, on the host; of a frozen model its parameters.
  [[nodiscard]] at::Tensor master(int group) const;
  // Sets master weights, and parameters made of them, from owned element `begin` on. `values`: on
  // the host; of a bf16 model changed as by leave_ties() (kernels/cpu/update/remainder.hpp).
  void set_master(int group, std::int64_t begin, const at::Tensor& values);
  // Makes what the image does not have from its master weights: parameters outside NVMe.
  void restore_from_image(int group, std::int64_t begin, std::int64_t elems);

  // Of the master weights that write() has been given.
  [[nodiscard]] FrozenRounding& rounding() { return rounding_; }

 private:
  // Makes master weights of `values`, the group's parameters from owned element `begin` on, where
  // the device has remainders.
  void add_low(int group, std::int64_t begin, std::span<float> values) const;
  // Elements [begin, begin + elems) of an owned part. The first `near` of them live on the device,
  // from element `begin` of `on_device` on. The others live off-device, from element `off_begin` of
  // the off-device part on.
  struct Split {
    at::Tensor on_device;  // the array on the device; may be undefined
    std::int64_t begin = 0;
    std::int64_t near = 0;
    std::int64_t off_begin = 0;
  };
  [[nodiscard]] Split split(const StatePiece& piece, StateKind kind, std::int64_t first,
                            std::int64_t elems) const;

  const EngineSetup& setup_;
  GroupStore& store_;
  StepCarry& carry_;
  TierStore* const tiers_;
  FrozenRounding rounding_;
};

}  // namespace sluice
