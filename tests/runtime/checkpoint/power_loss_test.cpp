// The power goes at every call of a save and a purge; whatever part of the unsynced writes, names
// and renames arrived, in whatever order, a complete checkpoint is found and is the right one.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>

#include "base/error.hpp"
#include "tests/runtime/checkpoint/crash_file_system.hpp"
#include "tests/runtime/checkpoint/support.hpp"

namespace sluice::testing {
namespace {

constexpr int kImagesPerCall = 18;

// What a crash may leave: the step that the image has, by the strictest trust; -1: none. By the
// laxer trust it must be the same: nothing half-written looks complete.
std::int64_t step_found(FileSystem& files, const Layout& layout) {
  const NewestComplete by_manifest = newest_complete(files, "runs", Trust::kManifest);
  const NewestComplete found = newest_complete(files, "runs", Trust::kContents);
  if (!found.path || by_manifest.path != found.path) return -1;
  const std::int64_t step = open_checkpoint(files, *found.path).manifest().step;
  expect_loads(files, *found.path, step, layout);
  return step;
}

struct Outcome {
  int images = 0, lost = 0;  // images in which no right checkpoint was found
  std::int64_t calls = 0;
};

// Step 10 is there, 20 is saved and 10 purged; the power goes at each call in turn.
Outcome crash_everywhere(bool ignore_syncs) {
  std::mt19937 random(11);
  const Layout layout = make_layout(small_model(), {2, 2}, random);
  CrashFileSystem before;
  save(before, "runs", 10, layout);
  Outcome outcome;
  for (bool finished = false; !finished; ++outcome.calls) {
    const std::unique_ptr<CrashFileSystem> files = before.copy();
    files->ignore_syncs(ignore_syncs);
    files->lose_power_after(outcome.calls);
    std::int64_t least = 10;
    try {
      save(*files, "runs", 20, layout);
      least = 20;  // commit returned: this must not be lost
      (void)purge(*files, "runs", {1, {}});
      finished = true;
    } catch (const PowerLoss&) {
      finished = false;
    }
    for (int i = 0; i < kImagesPerCall; ++i, ++outcome.images) {
      const std::unique_ptr<CrashFileSystem> image = files->after_crash(random);
      const std::int64_t step = step_found(*image, layout);
      if (step < least || (step != 10 && step != 20)) {
        ++outcome.lost;
        continue;
      }
      if (i > 0) continue;
      // The run goes on.
      save(*image, "runs", 30, layout);
      (void)purge(*image, "runs", {1, {}});
      EXPECT_EQ(step_found(*image, layout), 30);
      EXPECT_EQ(image->list("runs"), (std::vector<std::string>{"latest", "step-00000030"}));
    }
  }
  return outcome;
}

TEST(PowerLoss, LeavesACompleteCheckpointAtEveryCall) {
  const Outcome outcome = crash_everywhere(false);
  EXPECT_EQ(outcome.lost, 0) << "of " << outcome.images << " images";
  EXPECT_GT(outcome.calls, 40);
}

// The test above can fail: on a disk that ignores syncs it does.
TEST(PowerLoss, ADiskThatIgnoresSyncsIsCaught) { EXPECT_GT(crash_everywhere(true).lost, 0); }

// output.dir is made by the launcher, or a process that was killed made the folders and synced
// none: the folder of the first commit must not go with a name above it.
TEST(PowerLoss, TheFirstCheckpointSurvivesWhoeverMadeTheFoldersAboveIt) {
  std::mt19937 random(12);
  const Layout layout = make_layout(small_model(), {1, 1}, random);
  for (const char* made : {"out", "out/run", "out/run/checkpoints"}) {
    for (const std::string root : {"", "/"}) {
      CrashFileSystem files;
      const std::string dir = root + "out/run/checkpoints";
      for (std::size_t end = 3; end <= std::string(made).size(); ++end) {
        if (end == std::string(made).size() || made[end] == '/') {
          (void)files.make_dir(root + std::string(made, end));
        }
      }
      save(files, dir, 10, layout);
      for (int i = 0; i < kImagesPerCall; ++i) {
        const std::unique_ptr<CrashFileSystem> image = files.after_crash(random);
        const NewestComplete found = newest_complete(*image, dir, Trust::kContents);
        ASSERT_TRUE(found.path) << dir << ", " << made << " was there";
        expect_loads(*image, *found.path, 10, layout);
      }
    }
  }
}

TEST(PowerLoss, AFolderAboveThatMayNotBeReadIsNoObstacle) {
  std::mt19937 random(13);
  const Layout layout = make_layout(small_model(), {1, 1}, random);
  CrashFileSystem files;
  (void)files.make_dir("home");
  (void)files.make_dir("home/me");
  files.forbid_sync_of("home");
  save(files, "home/me/checkpoints", 10, layout);
  EXPECT_TRUE(newest_complete(files, "home/me/checkpoints", Trust::kContents).path);
  files.forbid_sync_of("home/me");  // where a name is new, it must become durable
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_THROW(save(files, "home/me/others", 10, layout), IoError);
  }
}

}  // namespace
}  // namespace sluice::testing
