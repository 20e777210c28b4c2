// Who may write to a folder: processes that hold it, die, are slow to die, and file systems that
// cannot tell.
#include "runtime/checkpoint/io/writer_lock.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <future>
#include <memory>
#include <thread>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/log.hpp"
#include "tests/killed_process.hpp"
#include "tests/runtime/checkpoint/test_folder.hpp"

namespace sluice::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr milliseconds kAtOnce{0};
constexpr milliseconds kPatient{20000};

class WriterLocks : public TestFolder {
 public:
  ~WriterLocks() override {
    set_log_sink({});
    arm_failpoints("");
  }

 protected:
  WriterLocks() : TestFolder("writer-lock") {
    set_log_sink([this](LogLevel level, std::string_view line) {
      if (level == LogLevel::kWarning) warnings_ += std::string(line) + "\n";
    });
  }

  [[nodiscard]] std::vector<WrittenFolder> both() const {
    return {{"output.dir", path("run")}, {"checkpoint.dir", path("saves")}};
  }
  [[nodiscard]] std::string lock_of(const std::string& folder) const {
    return path(folder) + "/" + kWriterLockName;
  }
  // What a second writer of the folder is told; "" where it is let in.
  [[nodiscard]] static std::string refusal(const WrittenFolder& folder) {
    try {
      const WriterLock second({folder}, "another", kAtOnce);
      return "";
    } catch (const IoError& error) {
      EXPECT_EQ(error.exit_code(), 4);
      return error.what();
    }
  }

  std::string warnings_;
};

// Holds the folders until it is killed.
pid_t start_holder(const std::vector<WrittenFolder>& folders) {
  return start_process([&](const auto& tell) {
    const WriterLock lock(folders, "run runs/a", kAtOnce);
    if (tell()) ::pause();
  });
}

TEST_F(WriterLocks, ASecondWriterIsToldWhoTheFirstIs) {
  const pid_t holder = start_holder(both());
  const auto told =
      AllOf(HasSubstr(" is in use by run runs/a (pid " + std::to_string(holder) + " on host "),
            HasSubstr("or name another folder (checkpoint.dir)"));
  const WrittenFolder saves{"checkpoint.dir", path("saves")};
  EXPECT_THAT(refusal(saves), AllOf(HasSubstr("checkpoint.dir " + path("saves")), told));
  EXPECT_THAT(refusal({"-o", path("run")}), HasSubstr("-o " + path("run") + " is in use"));
  EXPECT_THROW(check_not_written({saves}, kAtOnce), IoError);
  // The first of several that is refused gives the others back.
  EXPECT_THROW(WriterLock({{"output.dir", path("other")}, saves}, "another", kAtOnce), IoError);
  EXPECT_FALSE(std::filesystem::exists(lock_of("other")));
  EXPECT_TRUE(is_locked(lock_of("saves")));
  kill_process(holder);
}

TEST_F(WriterLocks, AKilledOneLeavesNothingThatBlocks) {
  kill_process(start_holder(both()));
  EXPECT_TRUE(std::filesystem::exists(lock_of("saves")));
  EXPECT_NO_THROW(check_not_written(both(), kAtOnce));
  {
    const WriterLock next(both(), "run runs/b", kAtOnce);
    EXPECT_EQ(read_lock_holder(lock_of("saves")).work, "run runs/b");
    EXPECT_EQ(read_lock_holder(lock_of("saves")).pid, std::to_string(::getpid()));
  }
  EXPECT_FALSE(std::filesystem::exists(lock_of("run")));
  EXPECT_FALSE(std::filesystem::exists(lock_of("saves")));
  EXPECT_EQ(warnings_, "");
}

// Ends the lock after that time.
std::future<void> end_after(milliseconds time, std::unique_ptr<WriterLock> lock) {
  return std::async(std::launch::async, [time, ending = std::move(lock)]() mutable {
    std::this_thread::sleep_for(time);
    ending.reset();
  });
}

TEST_F(WriterLocks, AStartWaitsForOneThatIsEnding) {
  for (const bool only_looks : {false, true}) {
    auto ends =
        end_after(milliseconds(300), std::make_unique<WriterLock>(both(), "run runs/a", kAtOnce));
    if (only_looks) {
      EXPECT_NO_THROW(check_not_written(both(), kPatient));
    } else {
      const WriterLock next(both(), "run runs/b", kPatient);
      EXPECT_TRUE(is_locked(lock_of("run")));
      EXPECT_NE(refusal({"output.dir", path("run")}), "");
    }
    ends.get();
  }
}

// It is opened, removed by who holds it, and locked then: a lock that nobody else will ever meet.
TEST_F(WriterLocks, OfAFileThatIsGoneCountsForNothing) {
  const std::vector<WrittenFolder> run{{"output.dir", path("run")}};
  auto first = std::make_unique<WriterLock>(run, "run runs/a", kAtOnce);
  arm_failpoints("lock.take@1:delay=600");
  auto ends = end_after(milliseconds(200), std::move(first));
  const WriterLock next(run, "run runs/b", kPatient);
  EXPECT_TRUE(is_locked(lock_of("run")));
  EXPECT_EQ(read_lock_holder(lock_of("run")).work, "run runs/b");
  ends.get();
}

TEST_F(WriterLocks, OneFolderUnderTwoNamesIsLockedOnce) {
  std::filesystem::create_directory(path("run"));
  std::filesystem::create_directory_symlink("run", path("link"));
  const WriterLock lock({{"output.dir", path("run")},
                         {"checkpoint.dir", path("link")},
                         {"checkpoint.dir", path("run") + "/./"},
                         {"checkpoint.dir", path("run") + "/checkpoints"}},
                        "run runs/a", kAtOnce);
  for (const char* name : {"run", "link", "run/checkpoints"}) {
    EXPECT_NE(refusal({"output.dir", path(name)}), "") << name;
  }
  EXPECT_EQ(refusal({"output.dir", path("elsewhere")}), "");
  EXPECT_EQ(warnings_, "");
}

TEST_F(WriterLocks, ProgramsThatTheHolderStartsDoNotKeepIt) {
  LockFile lock;
  ASSERT_TRUE(lock.take(path("lock"), kAtOnce));
  FILE* const program = ::popen("cat", "w");  // lives until it is closed
  ASSERT_NE(program, nullptr);
  EXPECT_TRUE(is_locked(path("lock")));
  lock.release();
  EXPECT_FALSE(is_locked(path("lock")));
  ::pclose(program);
}

TEST_F(WriterLocks, WhereNothingCanBeLockedThereIsAWarning) {
  arm_failpoints("lock.take:error");
  {
    const WriterLock lock(both(), "run runs/a", kAtOnce);
    EXPECT_THAT(warnings_, AllOf(HasSubstr("checkpoint.dir " + path("saves") + " cannot be locked"),
                                 HasSubstr("No locks available")));
    EXPECT_NO_THROW(check_not_written(both(), kAtOnce));
  }
  arm_failpoints("");
  warnings_.clear();
  // A folder in the lock's place, and a file in the folder's.
  std::filesystem::create_directories(lock_of("odd"));
  std::ofstream(path("file")) << "x";
  const WriterLock lock({{"output.dir", path("odd")}, {"checkpoint.dir", path("file") + "/saves"}},
                        "run runs/a", kAtOnce);
  EXPECT_THAT(warnings_, AllOf(HasSubstr("output.dir " + path("odd") + " cannot be locked"),
                               ::testing::Not(HasSubstr("checkpoint.dir"))));
}

// Not of another process's that came since.
TEST_F(WriterLocks, OnlyItsOwnFileIsRemoved) {
  {
    const WriterLock lock(both(), "run runs/a", kAtOnce);
    std::filesystem::remove(lock_of("run"));
    std::ofstream(lock_of("run")) << "somebody's\n";
  }
  EXPECT_EQ(read_lock_holder(lock_of("run")).work, "somebody's");
  EXPECT_EQ(read_lock_holder(lock_of("run")).pid, "?");
}

}  // namespace
}  // namespace sluice::testing
