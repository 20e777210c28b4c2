#include "tests/runtime/engine/saved_world.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "runtime/checkpoint/io/checkpoint_load.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/run/resume.hpp"

namespace sluice::testing {
namespace {

constexpr std::int64_t kNoLastStep = std::numeric_limits<std::int64_t>::max();

class PartOfRank {
 public:
  PartOfRank(const EngineOptions& options, const Part& part, Communicator& comm, Engine& engine)
      : options_(options), part_(part), comm_(comm), engine_(engine) {}

  WorldResult run() {
    std::int64_t step = 0;
    if (!part_.resume.empty()) {
      const Resumed resumed = resume_run({.from = "auto", .dir = part_.resume}, kNoLastStep,
                                         engine_, comm_, local_file_system(), [] {});
      if (!resumed.run) throw Error("there was nothing to resume from in " + part_.resume);
      step = resumed.run->step;
    }
    for (int i = 0; i < part_.steps; ++i) train(++step);
    if (!part_.save.empty()) save(step);
    result_.eval_loss = engine_.evaluate(1);
    for (const std::string& name : parameter_names(engine_)) {
      const at::Tensor value = engine_.full_parameter(name);
      const float* data = host_data<float>(value);
      result_.weights[name].assign(data, data + value.numel());
    }
    return result_;
  }

 private:
  void train(std::int64_t step) {
    const StepResult result = engine_.train_step({.step = step, .lr = options_.optimizer.lr});
    result_.losses.push_back(result.loss);
    result_.norms.push_back(result.grad_norm);
  }

  void save(std::int64_t step) {
    Checkpointing saves({.checkpoint = {.dir = part_.save, .keep = 2}}, engine_, comm_,
                        local_file_system(), [](const std::string&, bool) {});
    RunState run;
    run.step = run.updates = step;
    EXPECT_TRUE(saves.save(run, part_.behind));
    for (int i = 0; i < part_.steps_behind; ++i) {
      train(++step);
      saves.look();
    }
    EXPECT_TRUE(saves.finish());
  }

  const EngineOptions& options_;
  const Part& part_;
  Communicator& comm_;
  Engine& engine_;
  WorldResult result_;
};

}  // namespace

EngineOptions options_of(const Layout& layout, const std::string& swap, DType dtype) {
  EngineOptions options = tiny_options();
  options.dp = layout.dp;
  options.parallel = layout.parallel;
  options.train.dtype = dtype;
  options.train.micro_batch = 1;
  options.train.global_batch = 12;  // of 1, 2, 3 and 4 ranks
  options.zero.stage = layout.stage;
  options.offload.optimizer = layout.optimizer;
  options.offload.parameters = layout.parameters;
  options.offload.gradients = layout.gradients;
  options.offload.device_fraction = layout.device_fraction;
  options.offload.host_fraction = layout.host_fraction;
  options.offload.chunk_bytes = 16 * 1024;
  options.offload.nvme_path = {swap};
  return options;
}

WorldResult train_part(const EngineOptions& given, const Part& part) {
  EngineOptions options = given;
  options.later_weights = !part.resume.empty();  // as a run that resumes: nothing is drawn before
  std::vector<WorldResult> results(static_cast<std::size_t>(world_size(options)));
  run_world_with_comm(options, Wire::kLocal, [&](Communicator& comm, Engine& engine) {
    results[static_cast<std::size_t>(comm.rank())] = PartOfRank(options, part, comm, engine).run();
  });
  for (const WorldResult& other : results) {
    EXPECT_EQ(other.losses, results[0].losses);
    EXPECT_EQ(other.weights, results[0].weights);
  }
  return results[0];
}

std::map<std::string, std::vector<float>> states_in(const std::string& folder) {
  Checkpoint checkpoint = open_checkpoint(local_file_system(), folder);
  std::map<std::string, std::vector<float>> states;
  for (const StateRange& param : checkpoint.parameters()) {
    for (const StateKind kind : kStateKinds) {
      if (!checkpoint.has(param.param, kind)) continue;
      const StateRange whole = whole_range(param.param, kind, TensorDType::kF32, param.shape);
      std::vector<float>& values = states[std::string(name_of(kind)) + "/" + param.param];
      values.resize(static_cast<std::size_t>(whole.elems()));
      checkpoint.read_range(whole, std::as_writable_bytes(std::span(values)));
    }
  }
  return states;
}

}  // namespace sluice::testing
