// Small step shapes of a GPT-like model: token and position tables, blocks of two sizes, a head.
#pragma once

#include <array>
#include <functional>
#include <string>

#include "runtime/program/step_shape.hpp"

namespace sluice {

inline constexpr std::array kAllTiers = {Tier::kDevice, Tier::kHost, Tier::kNvme};

struct ShapeChoice {
  int stage = 0;
  int dp = 2;
  int micro_batches = 1;
  bool layer_major = false;
  bool recompute = false;
  ReduceEvery reduce_every = ReduceEvery::kMicroBatch;
  std::int64_t bucket_bytes = 20'000;
  DType reduce_dtype = DType::kFloat32;
  int prefetch_units = 1;
  bool tied = false;     // the head reads the token table, which the embedding also reads
  bool persist = false;  // stage 3: small groups are resident
  DType dtype = DType::kFloat32;
  int blocks = 2;
  bool rounds = false;  // StepShape::rounds_master
  Placement placement{};
  double host_fraction = 0;  // share_states()
};

// Groups: 0 token table, 1 position table, 2 .. blocks + 1 the blocks, blocks + 2 the head's own.
// Units: 0 embedding, 1 .. blocks, then the loss head.
[[nodiscard]] StepShape make_shape(const ShapeChoice& choice);
[[nodiscard]] std::string name_of(const ShapeChoice& choice);

// Gradients of all groups that have one stream of them pass. REQUIRES: may_pass_gradients().
[[nodiscard]] StepShape passing(StepShape shape, bool updates_in_backward = false);

// Tiers 0 .. 80, in base 3: of the optimizer, parameters, gradients, activations.
inline constexpr int kPlacements = 81;
void place(Placement& placement, int tiers);
// Where every tier has a meaning; the writer refuses the rest.
[[nodiscard]] bool is_legal(const ShapeChoice& choice);

// Gradients off the device in bf16, which are reduced once a step.
[[nodiscard]] bool may_round_gradients(const ShapeChoice& choice);
void round_gradients(ShapeChoice& choice);  // REQUIRES: may_round_gradients

// States off the device, in more chunks than the ring holds, and gradients that come in small
// buckets: some chunks can be updated early.
[[nodiscard]] ShapeChoice early_gradients(bool speculate = true, Tier optimizer = Tier::kNvme);
// The i-th of so many, of every stage and order, dtype, and tier of parameters and gradients that
// has a meaning there; the rest stays.
inline constexpr int kVariants = 4 * 9 * 4;
[[nodiscard]] ShapeChoice vary(ShapeChoice choice, int i);

// Under a sanitizer, where a case takes ten times as long, every fifth is looked at: still each
// value of each choice.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kCaseStride = 5;
#else
inline constexpr int kCaseStride = 1;
#endif

// Every legal combination of the values that are tested.
void for_each_choice(const std::function<void(const ShapeChoice&)>& visit);

}  // namespace sluice
