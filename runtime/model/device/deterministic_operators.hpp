// libtorch's switch for operators that have a deterministic form: on while an object lives that was
// made with `on`. The switch is the process's: ranks that are threads of one process all have it,
// or none.
#pragma once

namespace sluice {

class DeterministicOperators {
 public:
  explicit DeterministicOperators(bool on);
  ~DeterministicOperators();
  DeterministicOperators(const DeterministicOperators&) = delete;
  DeterministicOperators& operator=(const DeterministicOperators&) = delete;

 private:
  const bool on_;
};

}  // namespace sluice
