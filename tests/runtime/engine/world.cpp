#include "tests/runtime/engine/world.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

#include "kernels/cpu/cpu_features.hpp"
#include "runtime/engine/rank_part.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/run/machine.hpp"
#include "runtime/run/planned_engine.hpp"
#include "tests/free_port.hpp"

namespace sluice::testing {
namespace {

void prepare_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    enable_flush_to_zero();
    set_libtorch_threads(1);
  });
}

using World = std::vector<std::unique_ptr<Communicator>>;

World connect(int size, Wire wire) {
  if (wire == Wire::kLocal || size == 1) return make_local_communicators(size);
  const int port = free_port();
  World comms(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      comms[static_cast<std::size_t>(rank)] = make_gloo_communicator(
          {.rank = rank, .size = size, .master_port = port, .timeout = std::chrono::seconds(60)});
    });
  }
  for (std::thread& thread : threads) thread.join();
  return comms;
}

// Connecting takes longer than a tiny run: worlds of one kind are used again, unless one broke.
World& shared_world(int size, Wire wire) {
  static std::map<std::pair<int, Wire>, World> worlds;
  World& world = worlds[{size, wire}];
  if (world.empty()) world = connect(size, wire);
  return world;
}

}  // namespace

EngineOptions tiny_options() {
  EngineOptions options;
  options.model = {.layers = 2, .hidden = 32, .heads = 2, .vocab = 61, .seq = 16};
  options.train.micro_batch = 2;
  options.train.seed = 7;
  options.train.clip = 1.0;
  options.optimizer.lr = 1e-2;
  options.zero.bucket_bytes = 16 * 1024;
  return options;
}

RowSource formula_rows(std::int64_t seq, std::int64_t vocab) {
  return [=](std::int64_t index, std::int64_t first, std::int64_t rows, SampleRows& out) {
    out.tokens.clear();
    out.targets.clear();
    for (std::int64_t r = first; r < first + rows; ++r) {
      const auto at = [&](std::int64_t s) {
        const auto u = static_cast<std::uint64_t>(index * 131 + r * 7919) * 2654435761U;
        return static_cast<std::int64_t>((u >> 9) + static_cast<std::uint64_t>(s * (3 + r % 5))) %
               vocab;
      };
      for (std::int64_t s = 0; s < seq; ++s) {
        out.tokens.push_back(at(s));
        out.targets.push_back(at(s + 1));
      }
    }
  };
}

void run_world(const EngineOptions& options, Wire wire,
               const std::function<void(int rank, Engine&)>& each_rank, const RowSource& rows) {
  run_world_with_comm(
      options, wire, [&](Communicator& comm, Engine& engine) { each_rank(comm.rank(), engine); },
      rows);
}

void run_as_threads(std::size_t ranks, const std::function<void(std::size_t rank)>& body,
                    const std::function<void(std::size_t rank)>& abort) {
  std::vector<std::exception_ptr> errors(ranks);
  const auto run_rank = [&](std::size_t rank) {
    try {
      body(rank);
    } catch (...) {
      errors[rank] = std::current_exception();
      abort(rank);
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t rank = 1; rank < ranks; ++rank) threads.emplace_back(run_rank, rank);
  run_rank(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

namespace {

EngineOptions options_of_rank(const EngineOptions& options, std::size_t rank) {
  EngineOptions own = options;
  own.tiers.nvme.paths = options.offload.nvme_path;
  if (own.tiers.nvme.run_id.empty()) own.tiers.nvme.run_id = "world";
  own.tiers.nvme.rank = static_cast<int>(rank);
  own.tiers.nvme.cache = IoCache::kDirectOrBuffered;
  return own;
}

void run_mesh(const EngineOptions& options,
              const std::function<void(Communicator&, Engine&)>& each_rank, const RowSource& rows) {
  ParallelOptions parallel = options.parallel;
  parallel.data = options.dp;
  const Mesh mesh(parallel, world_size(options));
  std::vector<MeshComms> comms = make_local_mesh_comms(
      mesh, {.tied = options.model.tie_embeddings, .wraps = parallel.virtual_stages > 1},
      std::chrono::seconds(60));
  const auto body = [&](std::size_t rank) {
    EngineOptions own = options_of_rank(options, rank);
    own.part = part_of_rank(own.model, parallel, comms[rank].at());
    Engine engine = planned_engine(own, make_model(own.model, own.part, &comms[rank].tensor()),
                                   comms[rank], at::Device(c10::DeviceType::CPU), rows, rows);
    each_rank(comms[rank].world(), engine);
  };
  run_as_threads(comms.size(), body, [&](std::size_t rank) { comms[rank].abort(); });
}

}  // namespace

int world_size(const EngineOptions& options) {
  return options.dp * options.parallel.tensor * options.parallel.pipeline;
}

std::string describe_mesh(const EngineOptions& options) {
  const ParallelOptions& p = options.parallel;
  std::string text = "t" + std::to_string(p.tensor) + " d" + std::to_string(options.dp) + " p" +
                     std::to_string(p.pipeline);
  if (p.sequence) text += " sequence";
  if (p.pipeline > 1) text += " " + std::string(name_of(p.schedule));
  if (p.virtual_stages > 1) text += " v" + std::to_string(p.virtual_stages);
  return text;
}

std::vector<std::string> parameter_names(const Engine& engine) {
  std::vector<std::string> names;
  for (const ParamGroup& group : make_model_spec(engine.spec().options).groups) {
    for (const ParamSpec& param : group.params) names.push_back(param.tensor.name);
  }
  return names;
}

void run_world_with_comm(const EngineOptions& options, Wire wire,
                         const std::function<void(Communicator&, Engine&)>& each_rank,
                         const RowSource& given) {
  prepare_once();
  const RowSource rows = given ? given : formula_rows(options.model.seq, options.model.vocab);
  if (world_size(options) > options.dp) return run_mesh(options, each_rank, rows);
  World& comms = shared_world(options.dp, wire);
  const auto body = [&](std::size_t rank) {
    Engine engine = planned_engine(options_of_rank(options, rank), make_model(options.model),
                                   *comms[rank], at::Device(c10::DeviceType::CPU), rows, rows);
    each_rank(*comms[rank], engine);
  };
  try {
    run_as_threads(comms.size(), body, [&](std::size_t rank) { comms[rank]->abort(); });
  } catch (...) {
    comms.clear();
    throw;
  }
}

void note_weights(Engine& engine, WorldResult& result) {
  for (const std::string& name : parameter_names(engine)) {
    const at::Tensor value = engine.full_parameter(name);
    const float* data = host_data<float>(value);
    result.weights[name].assign(data, data + value.numel());
  }
}

void ScaledSteps::operator()(std::int64_t step, double scale) {
  const StepResult result =
      engine_.train_step({.step = step, .lr = 1e-2, .update = updates_ + 1, .loss_scale = scale});
  EXPECT_EQ(result.finite(), scale == kScale);
  if (!result.finite()) return;
  ++updates_;
  result_.losses.push_back(result.loss);
  result_.norms.push_back(result.grad_norm);
}

void train_steps(Engine& engine, const EngineOptions& options, int steps, WorldResult& result) {
  for (int step = 1; step <= steps; ++step) {
    const StepResult done = engine.train_step({.step = step, .lr = options.optimizer.lr});
    result.losses.push_back(done.loss);
    result.norms.push_back(done.grad_norm);
  }
  result.eval_loss = engine.evaluate(1);
  note_weights(engine, result);
}

WorldResult train_world(const EngineOptions& options, int steps, Wire wire, const RowSource& rows) {
  std::vector<WorldResult> results(static_cast<std::size_t>(world_size(options)));
  run_world(
      options, wire,
      [&](int rank, Engine& engine) {
        train_steps(engine, options, steps, results[static_cast<std::size_t>(rank)]);
      },
      rows);
  for (const WorldResult& other : results) {
    EXPECT_EQ(other.losses, results[0].losses);
    EXPECT_EQ(other.norms, results[0].norms);
    EXPECT_EQ(other.eval_loss, results[0].eval_loss);
    EXPECT_EQ(other.weights, results[0].weights);
  }
  return results[0];
}

void expect_same_bits(const WorldResult& a, const WorldResult& b, const std::string& what) {
  EXPECT_EQ(a.losses, b.losses) << what;
  EXPECT_EQ(a.norms, b.norms) << what;
  EXPECT_EQ(a.eval_loss, b.eval_loss) << what;
  ASSERT_EQ(a.weights.size(), b.weights.size());
  for (const auto& [name, values] : a.weights) {
    EXPECT_TRUE(values == b.weights.at(name)) << what << ": " << name;
  }
}

}  // namespace sluice::testing
