#include <ATen/Context.h>

#include "runtime/model/device/deterministic_operators.hpp"

namespace sluice {

DeterministicOperators::DeterministicOperators(bool on) : on_(on) {
  if (!on_) return;
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  at::globalContext().setDeterministicAlgorithms(true, false);
}

DeterministicOperators::~DeterministicOperators() {
  if (on_) at::globalContext().setDeterministicAlgorithms(false, false);
}

}  // namespace sluice
