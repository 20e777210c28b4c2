// A machine with a GPU that the program cannot use: commands are refused instead of taking the CPU
// without a word. The driver is fake_driver.cpp, so no GPU and no CUDA module are needed.
#include <gtest/gtest.h>

#include "tests/cli/program.hpp"

namespace sluice::testing {
namespace {

using Environment = std::map<std::string, std::string>;

// A driver that shows `gpus`, and the CUDA module at `module`.
Environment machine(int gpus, const std::string& module) {
  return {{"LD_LIBRARY_PATH", SLUICE_BINARY_DIR "/tests/fake_driver"},
          {"CUDA_VISIBLE_DEVICES", "0"},
          {"FAKE_GPUS", std::to_string(gpus)},
          {"SLUICE_CUDA_MODULE", module}};
}

void expect_part(const Finished& run, const std::string& part) {
  EXPECT_NE(run.output.find(part), std::string::npos) << part << "\n" << run.output;
}

constexpr char kNoModule[] = "/nowhere/libsluice_cuda.so";

TEST(GpuChoice, WithoutTheModuleOnlyABackendOfCpusRuns) {
  const Scratch scratch;
  write_tiny(scratch);
  const Environment here = machine(1, kNoModule);
  const std::string steps = " --set train.steps=2 --set checkpoint.dir=ckpt ";
  const Finished cpu =
      run_program(scratch, "train tiny.yaml --nproc 1 --set launch.backend=gloo" + steps, here);
  ASSERT_EQ(cpu.exit_code, 0) << cpu.output;
  for (const std::string& command :
       {"train tiny.yaml --set output.dir=other" + steps, std::string("train tiny.yaml --dry-run"),
        std::string("plan tiny.yaml"), std::string("bench step tiny.yaml --steps 1"),
        std::string("eval tiny.yaml --checkpoint ckpt"),
        std::string("generate tiny.yaml --checkpoint ckpt --prompt a --max-tokens 1")}) {
    const Finished run = run_program(scratch, command, here);
    EXPECT_EQ(run.exit_code, 2) << command << "\n" << run.output;
    expect_part(
        run, std::string("1 GPU is visible, and the CUDA module ") + kNoModule + " is not there");
    expect_part(run, "launch.backend: gloo runs on the CPU");
  }
  EXPECT_FALSE(std::filesystem::exists(scratch.path("other")));
  // Another machine's plan asks nothing of this one.
  EXPECT_EQ(run_program(scratch, "plan tiny.yaml --profile cpu", here).exit_code, 0);
}

TEST(GpuChoice, AModuleThatDoesNotLoadIsRefusedWithTheLoadersReason) {
  const Scratch scratch;
  write_tiny(scratch);
  scratch.write("module.so", "no library");
  const std::string module = scratch.path("module.so");
  const Finished run = run_program(scratch, "plan tiny.yaml", machine(2, module));
  EXPECT_EQ(run.exit_code, 2) << run.output;
  expect_part(run, "2 GPUs are visible, and the CUDA module cannot be loaded: " + module);
}

TEST(GpuChoice, ALauncherThatForbidsTheModuleIsQuoted) {
  const Scratch scratch;
  write_tiny(scratch);
  Environment here = machine(1, "/proc/self/exe");
  here["SLUICE_CUDA_REFUSED"] = "torch 2.11.0+cpu is for CPUs";
  const Finished run = run_program(scratch, "plan tiny.yaml", here);
  EXPECT_EQ(run.exit_code, 2) << run.output;
  expect_part(run, "1 GPU is visible, and torch 2.11.0+cpu is for CPUs; install");
  expect_part(run, "launch.backend: gloo runs on the CPU");
}

// Before the CUDA module is asked for: another build would not help.
TEST(GpuChoice, AGpuThatIsTooOldIsRefusedBeforeTheModule) {
  const Scratch scratch;
  write_tiny(scratch);
  Environment here = machine(1, kNoModule);
  here["FAKE_CAPABILITY"] = "75";
  const Finished run = run_program(scratch, "plan tiny.yaml", here);
  EXPECT_EQ(run.exit_code, 2) << run.output;
  expect_part(run, "1 GPU is visible, and its compute capability is 7.5");
  expect_part(run, "launch.backend: gloo runs on the CPU");
}

// A machine of two GPUs whose driver shows this process none.
Environment hidden_by(const std::string& shown) {
  Environment here = machine(0, kNoModule);
  here["CUDA_VISIBLE_DEVICES"] = shown;
  here["FAKE_DRIVER_STATUS"] = "100";  // CUDA_ERROR_NO_DEVICE
  here["FAKE_MANAGED_GPUS"] = "2";
  return here;
}

TEST(GpuChoice, AMistypedListOfVisibleGpusIsRefusedAndQuoted) {
  const Scratch scratch;
  write_tiny(scratch);
  for (const std::string& shown : std::vector<std::string>{"9", "cuda:0", ",1", "GPU-1234"}) {
    for (const std::string& command :
         {std::string("train tiny.yaml --set train.steps=1"), std::string("plan tiny.yaml")}) {
      const Finished run = run_program(scratch, command, hidden_by(shown));
      EXPECT_EQ(run.exit_code, 2) << command << "\n" << run.output;
      expect_part(run, "the driver has 2 GPUs, but CUDA_VISIBLE_DEVICES='" + shown +
                           "' hides all GPUs: its first name is none of a GPU here; unset");
    }
  }
  Environment twice = hidden_by("0,0");
  twice["FAKE_DRIVER_STATUS"] = "101";  // CUDA_ERROR_INVALID_DEVICE
  expect_part(run_program(scratch, "plan tiny.yaml", twice), "CUDA_VISIBLE_DEVICES='0,0' hides");
}

TEST(GpuChoice, HiddenGpusAreNamedWhereRanksTakeTheCpu) {
  const Scratch scratch;
  write_tiny(scratch);
  const std::string steps = " --nproc 1 --set train.steps=1 --set output.dir=run";
  int runs = 0;
  for (const std::string& shown : std::vector<std::string>{"", "-1", "NoDevFiles"}) {
    const std::string note =
        "note: the driver has 2 GPUs, but CUDA_VISIBLE_DEVICES='" + shown + "' hides all GPUs";
    for (const std::string& command :
         {"train tiny.yaml" + steps + std::to_string(++runs), std::string("plan tiny.yaml")}) {
      const Finished run = run_program(scratch, command, hidden_by(shown));
      EXPECT_EQ(run.exit_code, 0) << command << "\n" << run.output;
      expect_part(run, note + ", so ranks run on the CPU; unset CUDA_VISIBLE_DEVICES");
      if (command.starts_with("train")) expect_part(run, "; 1 CPU rank, ZeRO stage ");
    }
  }
  const Finished chosen =
      run_program(scratch, "plan tiny.yaml --set launch.backend=gloo", hidden_by(""));
  EXPECT_EQ(chosen.output.find("CUDA_VISIBLE_DEVICES"), std::string::npos) << chosen.output;
}

TEST(GpuChoice, ADriverWithoutGpusIsAMachineWithoutGpus) {
  const Scratch scratch;
  write_tiny(scratch);
  EXPECT_EQ(run_program(scratch, "plan tiny.yaml", machine(0, kNoModule)).exit_code, 0);
  Environment none = machine(1, kNoModule);
  none["FAKE_DRIVER_STATUS"] = "100";  // CUDA_ERROR_NO_DEVICE
  EXPECT_EQ(run_program(scratch, "plan tiny.yaml", none).exit_code, 0);
}

}  // namespace
}  // namespace sluice::testing
