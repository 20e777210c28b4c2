// SIGKILL at every file-system call of a save and a purge, and failures of each kind of call.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <random>
#include <string>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "tests/runtime/checkpoint/support.hpp"

namespace sluice::testing {
namespace {

struct Disarm {
  Disarm() = default;
  ~Disarm() { arm_failpoints(""); }
  Disarm(const Disarm&) = delete;
  Disarm& operator=(const Disarm&) = delete;
};

// A directory with steps 5 and 10, copied for each trial.
class Faults : public ::testing::Test {
 protected:
  Faults() {
    std::mt19937 random(21);
    layout_ = make_layout(small_model(), {2, 1, TensorDType::kBF16}, random);
    save(files_, base_.path() + "/runs", 5, layout_);
    save(files_, base_.path() + "/runs", 10, layout_);
  }
  void fresh_copy(const std::string& to) const {
    std::filesystem::remove_all(to);
    std::filesystem::copy(base_.path() + "/runs", to, std::filesystem::copy_options::recursive);
  }
  void save_and_purge(const std::string& dir) {
    save(files_, dir, 20, layout_);
    (void)purge(files_, dir, {2, {}});
  }
  // 10 or 20, compared with the oracle; then the next save does what it should.
  void expect_goes_on(const std::string& dir, const std::string& what) {
    SCOPED_TRACE(what);
    const NewestComplete found = newest_complete(files_, dir, Trust::kContents);
    ASSERT_TRUE(found.path);
    EXPECT_EQ(newest_complete(files_, dir, Trust::kManifest).path, found.path);
    EXPECT_TRUE(found.name == "step-00000010" || found.name == "step-00000020") << found.name;
    expect_loads(files_, *found.path, found.name == "step-00000010" ? 10 : 20, layout_);
    const SaveTarget again = save(files_, dir, 20, layout_);
    (void)purge(files_, dir, {1, {}});
    expect_loads(files_, dir, 20, layout_);
    EXPECT_EQ(files_.list(dir), (std::vector<std::string>{"latest", again.name}));
  }

  FileSystem& files_ = local_file_system();
  TempDir base_;
  Layout layout_;
};

TEST_F(Faults, KilledAtEveryCall) {
  TempDir scratch;
  const std::string dir = scratch.path() + "/runs";
  int killed = 0;
  for (int call = 1;; ++call) {
    fresh_copy(dir);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      arm_failpoints("checkpoint.call@" + std::to_string(call) + ":kill");
      save_and_purge(dir);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    const bool was_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    ASSERT_TRUE(was_killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) << status;
    expect_goes_on(dir, "killed at call " + std::to_string(call));
    if (HasFailure() || !was_killed) break;
    ++killed;
  }
  EXPECT_GT(killed, 40);
}

// Each kind of call fails, the first time, the second, ... until a save passes untouched.
TEST_F(Faults, EveryCallFails) {
  struct Case {
    const char* failpoint;
    int error;
  };
  const Disarm disarm;
  TempDir scratch;
  const std::string dir = scratch.path() + "/runs";
  for (const Case& one : {Case{"checkpoint.create", EIO},
                          {"checkpoint.create.enospc", ENOSPC},
                          {"checkpoint.create.erofs", EROFS},
                          {"checkpoint.mkdir", EIO},
                          {"checkpoint.mkdir.erofs", EROFS},
                          {"checkpoint.write", EIO},
                          {"checkpoint.write.enospc", ENOSPC},
                          {"checkpoint.write.torn", EIO},
                          {"checkpoint.fsync", EIO},
                          {"checkpoint.fsync.enospc", ENOSPC},
                          {"checkpoint.fsync_dir", EIO},
                          {"checkpoint.rename", EIO},
                          {"checkpoint.unlink", EIO},
                          {"checkpoint.rmdir", EIO},
                          {"checkpoint.stat", EIO},
                          {"checkpoint.list", EIO}}) {
    int failed = 0, untouched = 0;
    for (int time = 1;; ++time) {
      fresh_copy(dir);
      const std::string armed = std::string(one.failpoint) + "@" + std::to_string(time) + ":error";
      arm_failpoints(armed);
      bool threw = false;
      try {
        save_and_purge(dir);
      } catch (const IoError& error) {
        threw = true;
        EXPECT_EQ(error.error_number(), one.error) << armed;
        EXPECT_NE(std::string(error.what()).find(dir), std::string::npos) << error.what();
      }
      arm_failpoints("");
      expect_goes_on(dir, armed);
      if (HasFailure()) return;
      // One failure is no exception: `latest` that could not be moved.
      if (!threw && ++untouched == 2) break;
      failed += threw ? 1 : 0;
    }
    EXPECT_GT(failed, 0) << one.failpoint;
  }
}

TEST_F(Faults, ShortWritesAreCarriedOn) {
  const Disarm disarm;
  TempDir scratch;
  arm_failpoints("checkpoint.write.short:error");
  save(files_, scratch.path(), 20, layout_);
  expect_loads(files_, scratch.path(), 20, layout_);
}

TEST_F(Faults, AnAbandonedSaveFreesItsSpace) {
  const Disarm disarm;
  TempDir scratch;
  const std::string dir = scratch.path() + "/runs";
  fresh_copy(dir);
  const SaveTarget target = begin_save(files_, dir, 20);
  arm_failpoints("checkpoint.write.enospc:error");
  EXPECT_THROW(RankWriter(files_, target, 0, layout_[0], {64, 1, 1}), IoError);
  arm_failpoints("");
  abandon_save(files_, target);
  EXPECT_EQ(files_.list(dir),
            (std::vector<std::string>{"latest", "step-00000005", "step-00000010"}));
  // A complete one is not abandoned by mistake.
  abandon_save(files_, save(files_, dir, 20, layout_));
  expect_loads(files_, dir, 20, layout_);
}

TEST_F(Faults, AReadThatFailsFallsBack) {
  const Disarm disarm;
  const std::string dir = base_.path() + "/runs";
  int fell_back = 0;
  for (int time = 1; time < 80; ++time) {  // more reads than there are
    arm_failpoints("checkpoint.read@" + std::to_string(time) + ":error");
    const NewestComplete found = newest_complete(files_, dir, Trust::kContents);
    arm_failpoints("");
    ASSERT_TRUE(found.path) << time;
    if (found.name == "step-00000010") continue;  // another one's manifest could not be read
    ++fell_back;
    ASSERT_EQ(found.refused.size(), 1U);
    EXPECT_EQ(found.refused[0].name, "step-00000010");
    EXPECT_NE(found.refused[0].reason.find("read"), std::string::npos) << found.refused[0].reason;
  }
  // The manifest, once for the order and once to be read, and of each of two files the header and
  // the blocks, which are one window.
  EXPECT_GE(fell_back, 5);
  EXPECT_LT(fell_back, 70);
}

TEST_F(Faults, AFullDiskForReal) {
  TempDir scratch;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {  // files may not grow beyond this: EFBIG where a full disk says ENOSPC
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{700, 700};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      save(files_, scratch.path(), 20, layout_);
    } catch (const IoError& error) {
      ::_exit(error.error_number() == EFBIG ? 3 : 4);
    }
    ::_exit(5);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 3);
  EXPECT_FALSE(newest_complete(files_, scratch.path(), Trust::kManifest).path);
}

TEST_F(Faults, AReadOnlyDirectory) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  TempDir scratch;
  ASSERT_EQ(::chmod(scratch.path().c_str(), 0500), 0);
  try {
    (void)begin_save(files_, scratch.path(), 1);
    ADD_FAILURE() << "a read-only directory was written to";
  } catch (const IoError& error) {
    EXPECT_EQ(error.error_number(), EACCES);
    EXPECT_NE(std::string(error.what()).find("checkpoint.dir"), std::string::npos);
  }
  ::chmod(scratch.path().c_str(), 0700);
}

TEST_F(Faults, AFileWhereTheDirectoryShouldBe) {
  TempDir scratch;
  replace_durably(files_, scratch.path() + "/file", "x");
  EXPECT_THROW((void)begin_save(files_, scratch.path() + "/file", 1), IoError);
  EXPECT_THROW((void)begin_save(files_, scratch.path() + "/file/below", 1), IoError);
}

}  // namespace
}  // namespace sluice::testing
