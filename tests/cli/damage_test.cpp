// What may happen to the files of a checkpoint, and what a disk may say while one is written: the
// program says so loudly, goes back to the one before, and the run is the one that nothing happened
// to.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <memory>
#include <set>

#include "tests/cli/tier_runs.hpp"
#include "tests/slow_tests.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;

const std::string kRun =
    "train tiny.yaml --set model.layers=1 --set model.hidden=16 --set model.seq=16"
    " --set train.eval_steps=0 --set train.steps=8 --set launch.threads=1"
    " --set checkpoint.every=3 --set checkpoint.async=false ";

Finished train(const Scratch& scratch, const std::string& out, const std::string& arguments = "",
               const std::map<std::string, std::string>& environment = {}) {
  return run_program(scratch, kRun + "--set output.dir=" + out + " " + arguments, environment);
}

struct Hurt {
  const char* name;
  std::function<void(const std::string& checkpoints)> happens;
  std::vector<const char*> said = {};  // of step 6, which is passed over; none: it is not
};

void PrintTo(const Hurt& hurt, std::ostream* out) { *out << hurt.name; }

constexpr const char* kSix = "/step-00000006";
constexpr const char* kRank0 = "/step-00000006/rank-00000.safetensors";
constexpr const char* kRank1 = "/step-00000006/rank-00001.safetensors";

// One bit, at a byte counted from the end where it is negative.
void flip(const std::string& path, std::streamoff at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const std::streamoff byte = at < 0 ? static_cast<std::streamoff>(fs::file_size(path)) + at : at;
  const int old = file.seekg(byte).get();
  file.seekp(byte).put(static_cast<char>(old ^ 4));
}

// The bytes of the header, of which the first eight say how long the rest is.
std::streamoff header_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof length);
  return static_cast<std::streamoff>(sizeof length + length);
}

void truncate(const std::string& path, double share) {
  fs::resize_file(path,
                  static_cast<std::uintmax_t>(static_cast<double>(fs::file_size(path)) * share));
}

class Damaged : public ::testing::TestWithParam<Hurt> {
 protected:
  // "whole" ran to its end; "run" has saved steps 3 and 6 and died in step 8.
  static void SetUpTestSuite() {
    scratch_ = std::make_unique<Scratch>();
    write_tiny(*scratch_);
    ASSERT_EQ(train(*scratch_, "whole").exit_code, 0);
    fs::remove_all(scratch_->path("whole/checkpoints"));
    const Finished run =
        train(*scratch_, "run", "", {{"SLUICE_FAILPOINTS", "engine.step@8:rank=0:kill"}});
    ASSERT_EQ(run.exit_code, 5) << run.output;
  }
  static void TearDownTestSuite() { scratch_.reset(); }
  static std::unique_ptr<Scratch> scratch_;
};
std::unique_ptr<Scratch> Damaged::scratch_;

TEST_P(Damaged, TheOneBeforeIsTakenLoudly) {
  const Hurt& hurt = GetParam();
  static const std::set<std::string> kSampled{"ABitOfTheLastTensor", "ABitOfTheManifest",
                                              "ATruncatedFile",      "AShardOfAnotherStep",
                                              "SwappedRankFiles",    "AMissingFile"};
  if (!kSampled.contains(hurt.name) && !slow_tests()) {
    GTEST_SKIP() << "runs with SLUICE_SLOW_TESTS=1";
  }
  const std::string name = std::string("run-") + hurt.name;
  fs::copy(scratch_->path("run"), scratch_->path(name), fs::copy_options::recursive);
  hurt.happens(scratch_->path(name + "/checkpoints"));
  const std::string verify = "checkpoint verify " + name + "/checkpoints";
  // What was never completed is no damage: saves that were killed leave it.
  const bool sound = hurt.said.empty() || hurt.name == std::string("AMissingManifest");
  EXPECT_EQ(run_program(*scratch_, verify).exit_code == 0, sound);
  const Finished resumed = train(*scratch_, name, "--resume auto");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  const char* from = hurt.said.empty() ? "going on with step 7" : "going on with step 4";
  EXPECT_NE(resumed.output.find(from), std::string::npos) << resumed.output;
  for (const char* said : hurt.said) {
    EXPECT_NE(resumed.output.find(said), std::string::npos) << said << "\n" << resumed.output;
  }
  EXPECT_EQ(scratch_->curve(name), scratch_->curve("whole"));
  fs::remove_all(scratch_->path(name));
}

INSTANTIATE_TEST_SUITE_P(
    By, Damaged,
    ::testing::Values(
        Hurt{"ABitOfAHeadersLength",
             [](const auto& in) { flip(in + kRank0, 1); },
             {"step-00000006", "rank-00000.safetensors", "going back to the one before"}},
        Hurt{"ABitOfAHeader",
             [](const auto& in) { flip(in + kRank1, 40); },
             {"IS DAMAGED", "rank-00001.safetensors"}},
        Hurt{"ABitOfTheFirstTensor",
             [](const auto& in) { flip(in + kRank0, header_bytes(in + kRank0)); },
             {"IS DAMAGED", "rank-00000.safetensors", "tensor master/", ", byte "}},
        Hurt{"ABitOfTheLastTensor",
             [](const auto& in) { flip(in + kRank1, -1); },
             {"IS DAMAGED", "rank-00001.safetensors", "tensor moment2/", ", byte "}},
        Hurt{"ABitOfTheManifest",
             [](const auto& in) { flip(in + kSix + "/manifest.json", -30); },
             {"manifest.json", "IS NOT USED, going back to the one before"}},
        Hurt{"ATruncatedFile",
             [](const auto& in) { truncate(in + kRank1, 0.7); },
             {"rank-00001.safetensors", "cut short", "IS NOT USED", "tensor "}},
        Hurt{"ATruncatedManifest",
             [](const auto& in) { truncate(in + kSix + "/manifest.json", 0.5); },
             {"manifest.json", "IS NOT USED"}},
        Hurt{"AShardOfAnotherStep",
             [](const auto& in) {
               fs::copy_file(in + "/step-00000003/rank-00001.safetensors", in + kRank1,
                             fs::copy_options::overwrite_existing);
             },
             {"rank-00001.safetensors", "of step 3, not 6", "going back to the one before"}},
        Hurt{"SwappedRankFiles",
             [](const auto& in) {
               fs::rename(in + kRank0, in + "/x");
               fs::rename(in + kRank1, in + kRank0);
               fs::rename(in + "/x", in + kRank1);
             },
             {"rank-0000", ", byte ", "going back to the one before"}},
        Hurt{"AMissingFile",
             [](const auto& in) { fs::remove(in + kRank0); },
             {"rank-00000.safetensors: is missing", "IS NOT USED"}},
        Hurt{"AMissingManifest",
             [](const auto& in) { fs::remove(in + kSix + "/manifest.json"); },
             {"step-00000006 was never completed and is not used"}},
        Hurt{"AMissingPointer", [](const auto& in) { fs::remove(in + "/latest"); }},
        Hurt{"APointerToNothing",
             [](const auto& in) { std::ofstream(in + "/latest") << "step-00000999\n"; }}),
    [](const auto& hurt) { return std::string(hurt.param.name); });

// Step 6 cannot be saved: the run says so and goes on, and where it dies, 3 is what it goes on
// from.
class DiskFails : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(DiskFails, TheRunGoesOnAndTheSaveBeforeIsTaken) {
  const auto& [failing, said] = GetParam();
  const bool sampled = std::string(failing).find("fsync@") != std::string::npos;
  if (!sampled && !slow_tests()) {
    GTEST_SKIP() << "runs with SLUICE_SLOW_TESTS=1";
  }
  const Scratch scratch;
  write_tiny(scratch);
  ASSERT_EQ(train(scratch, "whole").exit_code, 0);
  const Finished run =
      train(scratch, "run", "",
            {{"SLUICE_FAILPOINTS", std::string(failing) + ";engine.step@8:rank=0:kill"}});
  EXPECT_EQ(run.exit_code, 5) << run.output;
  for (const char* text : {"checkpoint of step 6 was not saved, the run goes on", said}) {
    EXPECT_NE(run.output.find(text), std::string::npos) << text << "\n" << run.output;
  }
  EXPECT_EQ(files_in(scratch, "run/checkpoints").size(), 2U) << "latest and step 3";
  const Finished resumed = train(scratch, "run", "--resume auto");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_NE(resumed.output.find("going on with step 4"), std::string::npos) << resumed.output;
  EXPECT_EQ(scratch.curve("run"), scratch.curve("whole"));
}

// Rank 1 creates, writes and syncs one file in a save: the second time is that of step 6.
// save's.
INSTANTIATE_TEST_SUITE_P(
    By, DiskFails,
    ::testing::Values(
        std::pair{"checkpoint.write.enospc@2:rank=1:error", "No space left on device"},
        std::pair{"checkpoint.write@2:rank=1:error", "Input/output error"},
        std::pair{"checkpoint.fsync@2:rank=1:error", "Input/output error"},
        std::pair{"checkpoint.fsync.enospc@2:rank=1:error", "No space left on device"},
        std::pair{"checkpoint.create.erofs@2:rank=1:error", "Read-only file system"}),
    [](const auto& info) {
      std::string name = info.param.first;
      name = name.substr(11, name.find('@') - 11);
      for (char& c : name) c = c == '.' ? '_' : c;
      return name;
    });

// A disk that turns read-only after the start: each save says so, and the run trains to its end.
TEST(ReadOnlyDirectory, IsSaidAndNothingIsLost) {
  const Scratch scratch;
  write_tiny(scratch);
  const Finished run =
      train(scratch, "run", "", {{"SLUICE_FAILPOINTS", "checkpoint.mkdir.erofs:rank=0:error"}});
  EXPECT_EQ(run.exit_code, 4) << run.output;
  EXPECT_EQ(scratch.metrics("run").size(), 8U) << run.output;
  EXPECT_NE(run.output.find("Read-only file system; name a folder you may write"),
            std::string::npos)
      << run.output;
}

}  // namespace
}  // namespace sluice::testing
