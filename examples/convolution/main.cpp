// Trains the convolution model on a text, on ranks that are threads of this process:
//
//   sluice_example_convolution TEXT [STAGE [RANKS [STEPS]]]
//
// Losses do not depend on STAGE: try 0 and 3.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "convolution_model.hpp"
#include "kernels/cpu/cpu_features.hpp"
#include "runtime/run/machine.hpp"
#include "runtime/run/planned_engine.hpp"

namespace {

int number(int argc, char** argv, int at, int otherwise) {
  return argc > at ? std::atoi(argv[at]) : otherwise;
}

void train_rank(const sluice::EngineOptions& options, int steps, const sluice::TrainingData& data,
                sluice::Communicator& comm) {
  const convolution::Options sizes;
  const std::int64_t batch = options.train.micro_batch * options.dp;
  const sluice::RowSource rows = [&](std::int64_t step, std::int64_t first, std::int64_t count,
                                     sluice::SampleRows& out) {
    data.train_rows(step, batch, first, count, out);
  };
  sluice::Engine engine = sluice::planned_engine(options, convolution::make_model(sizes), comm,
                                                 at::Device(c10::DeviceType::CPU), rows, rows);
  for (int step = 1; step <= steps; ++step) {
    const sluice::StepResult result = engine.train_step({.step = step, .lr = 3e-3});
    if (comm.rank() == 0 && (step == 1 || step % 10 == 0)) {
      std::printf("step %d loss %.9g grad norm %.9g\n", step, result.loss, result.grad_norm);
    }
  }
}

int run(int argc, char** argv) {
  if (argc < 2) throw sluice::ConfigError("usage: TEXT [STAGE [RANKS [STEPS]]]");
  sluice::enable_flush_to_zero();
  sluice::set_libtorch_threads(1);
  sluice::EngineOptions options;
  options.zero.stage = number(argc, argv, 2, 3);
  options.dp = number(argc, argv, 3, 2);
  const int steps = number(argc, argv, 4, 50);
  options.train.micro_batch = 8 / options.dp;
  sluice::DataOptions text;
  text.text = {argv[1]};
  const sluice::TrainingData data(text, convolution::Options{}.seq, options.train.seed);
  auto comms = sluice::make_local_communicators(options.dp);
  std::vector<std::exception_ptr> errors(comms.size());
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < comms.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        train_rank(options, steps, data, *comms[rank]);
      } catch (...) {
        errors[rank] = std::current_exception();
        comms[rank]->abort();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", sluice::error_chain(error).c_str());
    return sluice::exit_code_of(error);
  }
}
