// The dry run's bytes against those of real runs: each rank a process of its own, the planner's
// program executed by an engine over the communicator that runs use.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/error.hpp"
#include "kernels/cpu/cpu_features.hpp"
#include "runtime/launch/rank_env.hpp"
#include "runtime/model/counting_allocator.hpp"
#include "runtime/plan/planner.hpp"
#include "runtime/run/machine.hpp"
#include "runtime/run/planned_engine.hpp"
#include "tests/runtime/engine/world.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"
#include "tests/runtime/plan/executed_cases.hpp"
#include "tests/slow_tests.hpp"

namespace sluice::testing {
namespace {

constexpr unsigned kDeadlineSeconds = 240;
constexpr double kMostError = 0.01;
// oneDNN takes scratch for a bf16 product from the allocator, and for an fp16 product where the CPU
// multiplies fp16: by its blocking, at most some 1.7 MiB a thread however large the product, and up
// to this for those of the models here.
constexpr std::int64_t kBf16Scratch = 192 * 1024;
constexpr std::int64_t kFp16Scratch = 1024 * 1024;
// Fresh weights are drawn in pieces of so many bytes, before the first step.
constexpr std::int64_t kDrawn = std::int64_t{4} << 20;

struct Bytes {
  std::int64_t device = 0;
  std::int64_t host = 0;
  std::int64_t nvme = 0;
};

struct RankResult {
  Bytes planned;
  Bytes measured;
  std::int64_t device_whole = 0;  // the highest since the process began, construction included
  char error[400] = "";
};

Bytes planned_bytes(const EngineOptions& options) {
  Planner planner(named_profile("cpu"));
  const RunPlan plan = planner.plan({options, {}});
  return {plan.peak(Tier::kDevice), plan.peak(Tier::kHost), plan.peak(Tier::kNvme)};
}

std::unique_ptr<Communicator> connect(int rank, int size, int port) {
  if (size == 1) return std::move(make_local_communicators(1).front());
  return make_cpu_communicator({.rank = rank,
                                .size = size,
                                .master_port = port,
                                .timeout = std::chrono::seconds(kDeadlineSeconds / 2)});
}

void run_rank(const EngineOptions& given, int rank, int port, RankResult& result) {
  enable_flush_to_zero();
  set_libtorch_threads(1);
  install_counting_allocators();
  EngineOptions options = given;
  options.tiers.nvme.paths = options.offload.nvme_path;
  options.tiers.nvme.run_id = "plan";
  options.tiers.nvme.rank = rank;
  options.tiers.nvme.cache = IoCache::kDirectOrBuffered;
  result.planned = planned_bytes(options);
  const std::unique_ptr<Communicator> comm = connect(rank, options.dp, port);
  const std::int64_t before = allocation_count(CountedDevice::kHost).live;
  reset_allocation_peak(CountedDevice::kHost);
  const RowSource rows = formula_rows(options.model.seq, options.model.vocab);
  Engine engine = planned_engine(options, make_model(options.model), *comm,
                                 at::Device(c10::DeviceType::CPU), rows, rows);
  (void)engine.train_step({.step = 1, .lr = 1e-3});
  result.device_whole = allocation_count(CountedDevice::kHost).peak - before;
  // From the second step on a step begins with the updates of the one before.
  reset_allocation_peak(CountedDevice::kHost);
  for (int step = 2; step <= 3; ++step) (void)engine.train_step({.step = step, .lr = 1e-3});
  result.measured.device = allocation_count(CountedDevice::kHost).peak - before;
  result.device_whole = std::max(result.device_whole, result.measured.device);
  if (engine.tiers() == nullptr) return;
  result.measured.host = engine.tiers()->host_peak_bytes();
  result.measured.nvme = engine.tiers()->nvme_bytes();
}

[[noreturn]] void be_rank(const EngineOptions& options, int rank, int port, int pipe_end) {
  ::alarm(kDeadlineSeconds);
  RankResult result;
  try {
    run_rank(options, rank, port, result);
  } catch (const std::exception& failed) {
    std::snprintf(result.error, sizeof result.error, "%s", error_chain(failed).c_str());
  }
  const bool written = ::write(pipe_end, &result, sizeof result) == sizeof result;
  ::_exit(written ? 0 : 1);
}

// This process computes nothing and so has one thread: it may fork.
std::vector<RankResult> run_world_of_processes(const EngineOptions& options) {
  const PortReservation port;
  std::vector<std::pair<pid_t, int>> ranks;
  for (int rank = 0; rank < options.dp; ++rank) {
    int ends[2];
    if (::pipe(ends) != 0) throw IoError("no pipe to a rank", "pipe");
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::close(ends[0]);
      be_rank(options, rank, port.port(), ends[1]);
    }
    ::close(ends[1]);
    ranks.emplace_back(pid, ends[0]);
  }
  std::vector<RankResult> results;
  for (const auto& [pid, pipe_end] : ranks) {
    RankResult result;
    if (::read(pipe_end, &result, sizeof result) != sizeof result) {
      std::snprintf(result.error, sizeof result.error, "the rank died without a word");
    }
    ::close(pipe_end);
    ::waitpid(pid, nullptr, 0);
    results.push_back(result);
  }
  return results;
}

double relative(std::int64_t measured, std::int64_t planned) {
  return static_cast<double>(measured) / static_cast<double>(planned) - 1;
}

std::int64_t product_scratch(const EngineOptions& options) {
  if (options.model.matmul != MatmulType::kNative) return 0;
  const DType dtype = options.train.dtype;
  return dtype == DType::kBFloat16 ? kBf16Scratch : dtype == DType::kFloat16 ? kFp16Scratch : 0;
}

// The largest errors of the device, by whether products take scratch.
class Worst {
 public:
  void see(const ExecutedCase& c, const RankResult& rank) {
    const double error = relative(rank.measured.device, rank.planned.device);
    Entry& entry = product_scratch(c.options) > 0 ? with_scratch_ : exact_;
    ++entry.ranks;
    if (std::abs(error) >= std::abs(entry.error)) {
      entry = {error, rank.measured.device - rank.planned.device, entry.ranks, c.name};
    }
  }
  void print(std::size_t cases) const {
    std::printf("%zu configurations\n", cases);
    exact_.print("all but 16-bit products");
    with_scratch_.print("16-bit products of oneDNN");
  }

 private:
  struct Entry {
    double error = 0;
    std::int64_t bytes = 0;
    int ranks = 0;
    std::string name;

    void print(const char* what) const {
      std::printf("  %s, %d ranks: worst %+.4f %%, %+lld bytes (%s)\n", what, ranks, 100 * error,
                  static_cast<long long>(bytes), name.c_str());
    }
  };
  Entry exact_, with_scratch_;
};

void compare(const ExecutedCase& c, const RankResult& rank) {
  const Bytes& planned = rank.planned;
  const Bytes& measured = rank.measured;
  const std::int64_t scratch = product_scratch(c.options);
  const auto share = static_cast<std::int64_t>(kMostError * static_cast<double>(planned.device));
  EXPECT_LE(measured.device, planned.device + std::max(share, scratch));
  EXPECT_GE(measured.device, planned.device - share);
  EXPECT_LE(rank.device_whole, planned.device + std::max({share, scratch, kDrawn}));
  // The store's hashes are planned to 8 bytes an array.
  EXPECT_NEAR(static_cast<double>(measured.host), static_cast<double>(planned.host),
              1e-3 * static_cast<double>(planned.host));
  EXPECT_EQ(measured.nvme, planned.nvme);
}

void run_cases(const std::vector<ExecutedCase>& cases) {
  Worst worst;
  for (const ExecutedCase& c : cases) {
    SCOPED_TRACE(c.name);
    const TemporaryFolder folder;
    EngineOptions options = c.options;
    options.offload.nvme_path = {folder.path().string()};
    for (const RankResult& rank : run_world_of_processes(options)) {
      EXPECT_STREQ(rank.error, "");
      if (rank.error[0] != '\0') continue;
      compare(c, rank);
      worst.see(c, rank);
    }
  }
  worst.print(cases.size());
}

TEST(ExecutedMemory, PlansAreWhatRunsTakeSampled) { run_cases(sample_of(executed_cases())); }

TEST(ExecutedMemory, PlansAreWhatRunsTake) {
  const std::vector<ExecutedCase> cases = executed_cases();
  const auto exact = std::count_if(cases.begin(), cases.end(), [](const ExecutedCase& c) {
    return product_scratch(c.options) == 0;
  });
  EXPECT_GE(exact, 60);
  if (!slow_tests()) {
    GTEST_SKIP() << "all " << cases.size() << " configurations run with SLUICE_SLOW_TESTS=1";
  }
  run_cases(cases);
}

}  // namespace
}  // namespace sluice::testing
