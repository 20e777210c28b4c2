#include "runtime/engine/engine_programs.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "runtime/engine/engine_setup.hpp"
#include "runtime/program/check/program_check.hpp"
#include "runtime/program/write/step_writer.hpp"

namespace sluice {

std::int64_t EnginePrograms::arena_bytes() const {
  std::int64_t bytes = 0;
  for (const Program* program : all()) bytes = std::max(bytes, program->arena_bytes);
  return bytes;
}

const StateTable& EnginePrograms::states() const {
  for (const Program* program : all()) {
    if (!program->states.rows.empty()) return program->states;
  }
  throw Error("no program of this engine has a state table");
}

EnginePrograms write_programs(const EngineSetup& setup) {
  const StepShape& shape = setup.shape();
  EnginePrograms programs;
  if (setup.trains()) {
    programs.train = write_train_step(shape);
    programs.update = write_update_step(shape);
  }
  if (setup.options.purpose != EnginePurpose::kGenerate) programs.eval = write_eval_step(shape);
  if (setup.plan.decoding) programs.decode = write_decode_step(*setup.plan.decoding);
  for (const Program* program : programs.all()) {
    const std::string fault = find_fault(*program);
    check(fault.empty(), "the step program is sound: " + fault);
  }
  return programs;
}

}  // namespace sluice
