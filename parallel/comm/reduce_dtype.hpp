// The types of a reduce-scatter.
#pragma once

#include <string>

#include "base/dtype.hpp"

namespace sluice {

// `input` is the dtype of the inputs. `sent` is the dtype of the shares that are added: equal to
// `input`, or bf16 where `input` is fp32. Every share is then rounded to nearest even, the rank's
// own too, and travels in bf16 where ranks send messages. The sum is fp32. A group of one rank
// rounds nothing.
struct ReduceDtype {
  DType input = DType::kFloat32;
  DType sent = DType::kFloat32;

  // Implicit: shares travel as they are.
  constexpr ReduceDtype(DType both) : input(both), sent(both) {}  // NOLINT(*-explicit-*)
  // REQUIRES: equal types, or fp32 and bf16.
  constexpr ReduceDtype(DType of_input, DType of_share) : input(of_input), sent(of_share) {}

  [[nodiscard]] constexpr bool rounds() const { return sent != input; }
  [[nodiscard]] constexpr ReduceDtype in_group_of(int size) const {
    return size == 1 ? ReduceDtype(input) : *this;
  }
  bool operator==(const ReduceDtype&) const = default;
};

// "fp32", "fp32 as bf16"
[[nodiscard]] inline std::string name_of(ReduceDtype dtype) {
  std::string name(name_of(dtype.input));
  return dtype.rounds() ? name + " as " + std::string(name_of(dtype.sent)) : name;
}

}  // namespace sluice
