// What a rank takes of the machine: what the plan says, above what any run takes; and the same
// after many steps as after few.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <future>
#include <initializer_list>
#include <thread>

#include "tests/cli/rank_processes.hpp"
#include "tests/cli/tier_runs.hpp"
#include "tests/slow_tests.hpp"

namespace sluice::testing {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

std::size_t steps_of(const Scratch& scratch, const std::string& run) {
  const std::string text = scratch.read(run + "/metrics.jsonl");
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

// A run in the background, and its ranks.
class Observed {
 public:
  Observed(const Scratch& scratch, const std::string& name, const std::string& arguments,
           const std::map<std::string, std::string>& environment, int limit_s)
      : scratch_(scratch), name_(name) {
    ended_ = std::async(std::launch::async, [=, &scratch] {
      return run_program(scratch, "train tiny.yaml --set output.dir=" + name + arguments,
                         environment, limit_s);
    });
  }
  [[nodiscard]] bool is_over() const {
    return ended_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  void wait_for_step(std::size_t step) const {
    while (steps_of(scratch_, name_) < step && !is_over()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  [[nodiscard]] std::vector<int> ranks() const {
    return rank_processes(scratch_.path(), "output.dir=" + name_);
  }
  Finished result() { return ended_.get(); }

 private:
  const Scratch& scratch_;
  const std::string name_;
  std::future<Finished> ended_;
};

struct Taken {
  double planned = 0;  // MiB of all ranks: device (in memory, on a CPU) and host
  double measured = 0;
};

// Looks during a pause before step 5: by then everything has been used.
Taken look_at(const Scratch& scratch, const std::string& name, const std::string& arguments,
              int ranks) {
  Observed run(scratch, name, arguments + " --set train.steps=5 --set train.eval_steps=0",
               {{"SLUICE_FAILPOINTS", "engine.step@5:delay=1500"}}, 120);
  run.wait_for_step(4);
  Taken taken;
  const std::vector<int> processes = run.ranks();
  for (const int pid : processes) taken.measured += static_cast<double>(memory_of(pid)) / kMiB;
  const Finished finished = run.result();
  EXPECT_EQ(finished.exit_code, 0) << finished.output;
  EXPECT_EQ(processes.size(), static_cast<std::size_t>(ranks)) << finished.output;
  const nlohmann::json tiers = nlohmann::json::parse(scratch.read(name + "/plan.json"))["tiers"];
  for (const char* tier : {"device", "host"}) {
    taken.planned += ranks * tiers[tier]["peak"].get<double>() / kMiB;
  }
  return taken;
}

std::string shape(int layers, int hidden, int heads, int seq, int ranks) {
  return " --set model.layers=" + std::to_string(layers) +
         " --set model.hidden=" + std::to_string(hidden) +
         " --set model.heads=" + std::to_string(heads) + " --set model.seq=" + std::to_string(seq) +
         " --set launch.nproc=" + std::to_string(ranks) +
         " --set data.text=[text.txt] --set launch.threads=1";
}

class Memory : public ::testing::Test {
 protected:
  Memory() { write_tiny(scratch_); }
  Scratch scratch_;
};

// A run without size says what any run takes: libtorch's tables, the heap's rest, stacks.
TEST_F(Memory, OfARankIsThePlansAndAConstant) {
  double base[3] = {};  // of a rank, by number of ranks
  for (const int ranks : {1, 2}) {
    const Taken least = look_at(scratch_, "least" + std::to_string(ranks),
                                shape(1, 16, 2, 16, ranks) + everything_on("host"), ranks);
    base[ranks] = (least.measured - least.planned) / ranks;
    std::printf("a rank's constant, %d rank(s): %.1f MiB\n", ranks, base[ranks]);
  }
  // Two micro-batches: with one the plan is so small that the heap's rest is 7 % of it.
  const std::string small_chunks =
      " --set offload.chunk_bytes=128KiB --set offload.chunks=3 --set train.micro_batch=1 "
      "--set train.global_batch=2";
  const struct {
    const char* name;
    std::string arguments;
    int ranks;
  } rows[] = {
      {"device", shape(7, 312, 6, 96, 1), 1},
      {"host", shape(5, 312, 6, 96, 1) + everything_on("host"), 1},
      {"nvme", shape(9, 360, 6, 72, 1) + everything_on("nvme"), 1},
      {"nvme_small_chunks", shape(14, 360, 6, 72, 1) + everything_on("nvme") + small_chunks, 1},
      {"host_of_two", shape(7, 264, 3, 48, 2) + everything_on("host"), 2},
      {"nvme_of_two", shape(7, 360, 8, 80, 2) + everything_on("nvme"), 2},
  };
  double worst = 0;
  for (const auto& row : rows) {
    const Taken taken = look_at(scratch_, row.name, row.arguments, row.ranks);
    const double off = (taken.measured - row.ranks * base[row.ranks]) / taken.planned - 1;
    std::printf("%-18s planned %7.1f MiB, measured above the constant %7.1f MiB: %+.2f %%\n",
                row.name, taken.planned, taken.measured - row.ranks * base[row.ranks], 100 * off);
    EXPECT_LE(std::abs(off), 0.05) << row.name;
    worst = std::max(worst, std::abs(off));
  }
  std::printf("worst: %.2f %%\n", 100 * worst);
}

constexpr double kSlackMiB = 1.0;  // pages of files that come and go

// What must not grow at all; memory in whole MiB may differ by kSlackMiB.
void expect_as(const std::vector<Held>& first, const std::vector<Held>& now, std::size_t step) {
  for (std::size_t rank = 0; rank < first.size(); ++rank) {
    SCOPED_TRACE("step " + std::to_string(step) + ", rank " + std::to_string(rank));
    EXPECT_EQ(now[rank].descriptors, first[rank].descriptors);
    EXPECT_EQ(now[rank].threads, first[rank].threads);
    EXPECT_EQ(now[rank].shared, first[rank].shared);
    EXPECT_EQ(now[rank].locked, first[rank].locked);
    EXPECT_EQ(now[rank].pinned, first[rank].pinned);
    EXPECT_NEAR(static_cast<double>(now[rank].resident) / kMiB,
                static_cast<double>(first[rank].resident) / kMiB, kSlackMiB);
  }
}

std::vector<Held> held_by_all(const std::vector<int>& ranks) {
  std::vector<Held> held;
  for (const int rank : ranks) held.push_back(held_by(rank));
  return held;
}

// What the run's own counters say: the same after each step but the first few.
void expect_flat_counters(const Scratch& scratch, const std::string& run, std::size_t warm_up) {
  const std::vector<nlohmann::json> steps = scratch.metrics(run);
  ASSERT_GT(steps.size(), warm_up);
  for (const char* counter : {"device_peak", "host_peak", "pinned", "nvme"}) {
    const std::int64_t first = steps[warm_up - 1]["memory"][counter];
    for (std::size_t i = warm_up; i < steps.size(); ++i) {
      ASSERT_EQ(steps[i]["memory"][counter], first) << counter << " of step " << i + 1;
    }
  }
}

// Two ranks with everything on NVMe: nothing grows from the first look to the last.
void stays_flat(const Scratch& scratch, int steps, int warm_up, int limit_s) {
  const std::string small =
      shape(2, 32, 2, 16, 2) + everything_on("nvme") +
      " --set train.micro_batch=1 --set offload.chunk_bytes=16KiB"
      " --set offload.chunks=2 --set offload.queue_depth=4"
      " --set train.log_every=1000 --set train.eval_steps=0 --set train.steps=";
  Observed run(scratch, "flat", small + std::to_string(steps), {}, limit_s);
  run.wait_for_step(static_cast<std::size_t>(warm_up));
  const std::vector<int> ranks = run.ranks();
  ASSERT_EQ(ranks.size(), 2U) << run.result().output;
  const std::vector<Held> first = held_by_all(ranks);
  const std::int64_t disk = disk_use(scratch.path("swap"));
  EXPECT_GT(disk, 0);
  int looks = 0;
  for (std::size_t step = 0; step + 10 < static_cast<std::size_t>(steps);
       step = steps_of(scratch, "flat")) {
    const std::vector<Held> now = held_by_all(ranks);
    const std::int64_t disk_now = disk_use(scratch.path("swap"));
    if (run.is_over() || now.front().threads == 0 || now.back().threads == 0) break;
    expect_as(first, now, step);
    EXPECT_EQ(disk_now, disk) << step;
    ++looks;
    std::this_thread::sleep_for(std::chrono::milliseconds(steps > 1000 ? 1000 : 50));
  }
  EXPECT_GE(looks, 3);
  const Finished finished = run.result();
  EXPECT_EQ(finished.exit_code, 0) << finished.output;
  EXPECT_EQ(steps_of(scratch, "flat"), static_cast<std::size_t>(steps));
  expect_flat_counters(scratch, "flat", static_cast<std::size_t>(warm_up));
  std::printf(
      "%d looks: %.1f MiB resident, %lld descriptors, %lld threads, %lld shared mappings, %.1f MiB "
      "on the disk\n",
      looks, static_cast<double>(first[0].resident) / kMiB,
      static_cast<long long>(first[0].descriptors), static_cast<long long>(first[0].threads),
      static_cast<long long>(first[0].shared), static_cast<double>(disk) / kMiB);
}

TEST_F(Memory, IsTheSameAfterHundredsOfSteps) { stays_flat(scratch_, 400, 100, 120); }

TEST_F(Memory, IsTheSameAfterTwentyThousandSteps) {
  if (!slow_tests()) GTEST_SKIP() << "SLUICE_SLOW_TESTS is not set";
  stays_flat(scratch_, 20000, 500, 3500);
}

// No machine has so much: the run ends before it takes any.
constexpr char kHuge[] =
    "tiny.yaml --set model.vocab=257 --set model.hidden=65536 --set model.heads=64 --set "
    "train.dtype=bf16 ";

void expect_all(const Finished& run, std::initializer_list<const char*> parts) {
  for (const char* part : parts) {
    EXPECT_NE(run.output.find(part), std::string::npos) << part << "\n" << run.output;
  }
}

TEST(FreeMemory, ARunThatTheMachineCannotHoldDoesNotStart) {
  const Scratch scratch;
  write_tiny(scratch);
  const std::string huge =
      std::string("train ") + kHuge + "--set model.layers=16 --set offload.optimizer=host";
  const Finished refused = run_program(scratch, huge);
  EXPECT_EQ(refused.exit_code, 3) << refused.output;
  expect_all(refused, {"memory.host: the ranks of a host need ",
                       " TiB of its memory (a rank: ", " off the device, ",
                       " as device), and here are ", "\nsuggestions: ", "nothing fits"});
  EXPECT_EQ(refused.output.find("early updates"), std::string::npos) << refused.output;
  EXPECT_LT(refused.seconds, 60);  // ten times what it takes on an idle machine
  EXPECT_FALSE(std::filesystem::exists(scratch.path("run")));
  EXPECT_EQ(refused.output.find("tokenised "), std::string::npos) << refused.output;
  const Finished dry = run_program(scratch, huge + " --dry-run");
  EXPECT_EQ(dry.exit_code, 3) << dry.output;
  expect_all(dry, {"memory.host: the ranks of a host need "});
  expect_all(run_program(scratch, huge + " --dry-run --set offload.speculate=auto"),
             {"or a smaller memory.host, which bounds the early updates of offload.speculate"});
  EXPECT_EQ(dry.output.find("\nfits\n"), std::string::npos) << dry.output;
}

TEST(FreeMemory, ThePlanOfThisMachineSaysWhatItLacks) {
  const Scratch scratch;
  write_tiny(scratch);
  const std::string huge =
      std::string("plan ") + kHuge + "--set model.layers=16 --set offload.optimizer=host";
  const Finished text = run_program(scratch, huge);
  EXPECT_EQ(text.exit_code, 3) << text.output;
  expect_all(text, {"\nmemory.host: the ranks of a host need ", "\ndoes not fit this machine\n"});
  for (const std::string& line : text.lines()) EXPECT_LE(line.size(), 80U) << line;
  const nlohmann::json json =
      nlohmann::json::parse(run_program(scratch, huge + " --json 2>/dev/null").output);
  EXPECT_EQ(json["fits"], false);
  EXPECT_EQ(json["missing"], 0);  // of budgets, of which there are none
  EXPECT_EQ(json["shortages"].size(), 1U);
  // Another machine's plan does not know the memory of its host, and says so.
  const std::string note = "note: host memory is unlimited in this plan; give memory.host";
  const Finished other = run_program(scratch, huge + " --profile cpu");
  EXPECT_EQ(other.exit_code, 0) << other.output;
  expect_all(other, {note.c_str()});
  const Finished given = run_program(scratch, huge + " --profile cpu --set memory.host=900TiB");
  EXPECT_EQ(given.output.find(note), std::string::npos) << given.output;
}

// The first stage alone is larger than any machine; the ranks of a host are those of both.
TEST(FreeMemory, APipelineThatTheMachineCannotHoldIsRefusedToo) {
  const Scratch scratch;
  write_tiny(scratch);
  const std::string huge = std::string(kHuge) + "--set model.layers=16 --set parallel.pipeline=2";
  const Finished plan = run_program(scratch, "plan --world 2 " + huge);
  EXPECT_EQ(plan.exit_code, 3) << plan.output;
  const Finished refused = run_program(scratch, "train --nproc 2 --dry-run " + huge);
  EXPECT_EQ(refused.exit_code, 3) << refused.output;
  expect_all(refused, {"memory.host: the ranks of a host need "});
  // Both count what each stage needs.
  const auto need = [](const std::string& text) {
    const std::size_t at = text.find("need ", text.find("memory.host: the ranks of a host"));
    return text.substr(at, text.find(" TiB", at) - at);
  };
  EXPECT_EQ(need(refused.output), need(plan.output));
}

// Memory and disks are those of the ranks' hosts: this one's count if the file names it.
TEST(FreeMemory, OfAJobOnHostsThoseOfThisHostCount) {
  const Scratch scratch;
  write_tiny(scratch);
  scratch.write("here", "elsewhere.invalid slots=1\nlocalhost slots=1\n");
  scratch.write("there", "elsewhere.invalid slots=2\n");
  const std::string huge = std::string(kHuge) +
                           "--set model.layers=16 --set offload.optimizer=nvme --set "
                           "offload.nvme_path=[swap] --set checkpoint.at_end=false "
                           "--set launch.backend=gloo --set launch.hostfile=";
  for (const char* const command : {"train --dry-run ", "plan --world 2 "}) {
    const Finished here = run_program(scratch, command + huge + "here");
    EXPECT_EQ(here.exit_code, 3) << command << "\n" << here.output;
    expect_all(here, {"memory.host: the ranks of a host need ",
                      "offload.nvme_path: the ranks of a host need "});
    const Finished there = run_program(scratch, command + huge + "there");
    EXPECT_EQ(there.exit_code, 0) << command << "\n" << there.output;
  }
}

// States of 1 TiB: they would be on the host, if it were not for this machine's memory.
TEST(FreeMemory, AdviceStaysWithinTheMemoryOfThisMachine) {
  const Scratch scratch;
  write_tiny(scratch);
  const Finished refused = run_program(
      scratch,
      "train tiny.yaml --nproc 1 --set model.hidden=8192 --set model.heads=64 --set "
      "model.layers=80 --set train.dtype=bf16 --set memory.device=200GiB --set memory.nvme=1GiB");
  EXPECT_EQ(refused.exit_code, 3) << refused.output;
  expect_all(refused, {"nothing fits; this misses least:"});
}

TEST(FreeMemory, StatesThatTheDiskCannotHoldAreRefusedBeforeTheStart) {
  const Scratch scratch;
  write_tiny(scratch);
  const std::string huge = std::string(kHuge) +
                           "--set model.layers=64 --set offload.optimizer=nvme --set "
                           "offload.nvme_path=[swap] --set checkpoint.at_end=false";
  for (const char* const command : {"train ", "train --dry-run ", "plan "}) {
    const Finished refused = run_program(scratch, command + huge);
    EXPECT_EQ(refused.exit_code, 3) << command << "\n" << refused.output;
    expect_all(refused, {"offload.nvme_path: the ranks of a host need "});
  }
  EXPECT_FALSE(std::filesystem::exists(scratch.path("swap")));
}

}  // namespace
}  // namespace sluice::testing
